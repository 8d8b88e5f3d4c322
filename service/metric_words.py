"""What metrics are called in a sentence."""

from __future__ import annotations

from collections.abc import Mapping

METRIC_WORDS: Mapping[str, str] = {
    "grad_norm": "gradient norm",
    "local_grad_norm": "local gradient norm",
    "global_loss": "global loss",
    "act_grad_norm": "gradient norm of the activations",
    "grad_absmax": "largest gradient",
    "loss_scale": "loss scale",
    "joint": "relation of the metrics",
    "step_time_s": "step time",
    "eval_accuracy": "evaluation accuracy",
    "eval_loss": "evaluation loss",
    "test_accuracy": "test accuracy",
}
NONFINITE_WORDS: Mapping[str, str] = {
    "nonfinite_input": "values in {its} input",
    "nonfinite_act": "activations",
    "nonfinite_logits": "logits",
    "nonfinite_loss": "losses",
    "nonfinite_grad": "gradients",
    "nonfinite_reduced": "reduced gradients",
    "nonfinite_param": "parameters",
    "nonfinite_send": "values in what {it} {sends}",
}
"""What a count of non-finite values counts: many things, where a loss is one."""
