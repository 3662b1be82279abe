"""Whether a difference is more than noise: statistics in closed form, without a library. Numbers in, numbers out."""
