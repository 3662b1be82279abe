// Sorts, filters, hides and highlights rows. The page is complete without it.
"use strict";
(() => {
  const table = document.querySelector(".scores table");
  if (!table) return;
  const rows = Array.from(table.querySelectorAll("tbody tr"));
  const order = new Map(rows.map((row, index) => [row, index]));
  const body = table.tBodies[0];
  const announcement = document.getElementById("announcement");
  const UNITS = { s: 1, min: 60, h: 3600, d: 86400, K: 1e3, M: 1e6, G: 1e9, T: 1e12, P: 1e15, E: 1e18 };

  // The number at the beginning of a cell, times its unit; NaN without a number.
  const number = (cell) => {
    const found = /^[<+]?(-?[\d.]+)(?:\s*(s|min|h|d|[KMGTPE])\b)?/.exec(cell.textContent.trim().replace("−", "-"));
    return found ? parseFloat(found[1]) * (UNITS[found[2]] || 1) : NaN;
  };
  const compare = (column, numeric) => (a, b) => {
    const [x, y] = [a.cells[column], b.cells[column]];
    if (!numeric) return x.textContent.trim().localeCompare(y.textContent.trim());
    const [m, n] = [number(x), number(y)];
    return Number.isNaN(m) || Number.isNaN(n) ? Number.isNaN(m) - Number.isNaN(n) : m - n;
  };

  const heads = Array.from(table.tHead.rows[0].cells);
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const before = head.getAttribute("aria-sort");
      const way = before === "ascending" ? "descending" : before === "descending" ? null : "ascending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      const numeric = head.classList.contains("number");
      const sorted = [...rows].sort((a, b) => order.get(a) - order.get(b));
      if (way) {
        head.setAttribute("aria-sort", way);
        const by = compare(column, numeric);
        const empty = (row) => numeric && Number.isNaN(number(row.cells[column]));
        sorted.sort((a, b) => empty(a) - empty(b) || (way === "ascending" ? by(a, b) : by(b, a)));
      }
      body.append(...sorted);
      announcement.textContent = way ? `Sorted by ${button.textContent.trim()}, ${way}` : "Original order";
    });
  });

  const restore = document.getElementById("restore");
  const marked = (label) => Array.from(document.querySelectorAll("[data-row]")).filter((e) => e.dataset.row === label);
  const count = () => {
    const hidden = rows.filter((row) => row.hidden).length;
    restore.hidden = hidden === 0;
    restore.textContent = `Show ${hidden} hidden ${hidden === 1 ? "row" : "rows"}`;
  };
  const setHidden = (element, hidden) => hidden ? element.setAttribute("hidden", "") : element.removeAttribute("hidden");
  rows.forEach((row) => {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "hide";
    button.textContent = "×";
    button.setAttribute("aria-label", `Hide row ${row.dataset.row}`);
    button.title = "Hide this row, here and in the figures";
    row.cells[0].prepend(button);
    button.addEventListener("click", () => {
      marked(row.dataset.row).forEach((element) => setHidden(element, true));
      count();
      restore.focus();
    });
  });
  const filter = document.getElementById("filter");
  restore.addEventListener("click", () => {
    document.querySelectorAll("[data-row]").forEach((element) => setHidden(element, false));
    filter.value = "";
    count();
  });
  filter.addEventListener("input", () => {
    const text = filter.value.trim().toLowerCase();
    document.querySelectorAll("[data-row]").forEach((element) => {
      setHidden(element, !element.dataset.row.toLowerCase().includes(text));
    });
    count();
  });
  count();

  // Pointing at a row, here or in a figure, lets the other rows of all figures fade.
  const main = document.querySelector("main");
  main.addEventListener("pointerover", (event) => {
    const label = event.target.closest("[data-row]")?.dataset.row;
    main.classList.toggle("pointed", label !== undefined);
    document.querySelectorAll("svg [data-row]").forEach((element) => {
      element.classList.toggle("current", element.dataset.row === label);
    });
  });
})();
