"""RunHooks: the defaults do nothing, and each hook is called by a training at its moment."""

import logging

from ablate.training import RunHooks
from tests.training.conftest import logger_to


def test_the_default_logger_is_out_of_reach_of_the_applications_configuration():
    lines = []
    handler = logger_to(lines).handlers[0]
    logging.getLogger().addHandler(handler)
    try:
        RunHooks().log.warning("not for the application")
        RunHooks()
    finally:
        logging.getLogger().removeHandler(handler)
    assert lines == []
    assert len(RunHooks().log.handlers) == 1


def test_an_evaluation_is_announced_before_the_report_of_its_step(training):
    run = training(train_steps=5, eval_every=2)
    run.fit()
    assert run.evaluations == [1, 3, 4]  # reports before it: of steps 2, 4 and the last
