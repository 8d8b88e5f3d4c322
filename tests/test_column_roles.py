"""What the names of columns and keys mean, and which of several is the one."""

from __future__ import annotations

import pytest

from ingest.errors import UnreadableInput
from ingest.role_names import ITERATION_NAMES
from ingest.roles import Loss, Part, Role, Roles, assign_roles, meaning_of


def roles_of(text: str, wanted: dict[str, str] | None = None) -> Roles:
    """The roles of a table, a line a row, cells between bars; an empty cell is none."""
    rows = [[cell.strip() for cell in line.split("|")] for line in text.strip().splitlines()]
    columns = [[row[at] or None for row in rows[1:]] for at in range(len(rows[0]))]
    return assign_roles(rows[0], columns, wanted)


def metrics_of(roles: Roles) -> dict[str, str]:
    return {roles.names[at]: metric for at, metric in roles.metrics.items()}


@pytest.mark.parametrize(
    "name",
    [
        *(
            "loss",
            "Loss",
            "lm loss",
            "lm-loss",
            "Train Loss",
            "train/loss_step",
            "Loss/train",
            "train_inner loss",
        ),
        *(
            "total_loss",
            "trainLoss",
            "training_loss",
            "nll_loss",
            "tloss",
            "losses/train",
            "train_loss_epoch",
        ),
        *("avg_loss", "Cross Entropy Loss", "model_loss", "metrics/train/loss", "ppo/loss/total"),
    ],
)
def test_the_loss_of_training_is_known_under_many_names(name: str) -> None:
    assert (meaning_of(name).metric, meaning_of(name).loss) == ("loss", Loss.WHOLE)


@pytest.mark.parametrize(
    ("name", "metric"),
    [
        *(
            ("gnorm", "grad_norm"),
            ("grad norm", "grad_norm"),
            ("GradNorm", "grad_norm"),
            ("norm", "grad_norm"),
        ),
        *(("l2_norm/grad/global", "grad_norm"), ("optim/total_grad_norm", "grad_norm")),
        *(("learning rate", "lr"), ("lr-AdamW/pg1", "lr"), ("x/lr0", "lr"), ("train/learning_rate", "lr")),
        *(("loss scale", "loss_scale"), ("grad_scale", "loss_scale"), ("amp_loss_scaling", "loss_scale")),
        *(
            ("number of skipped iterations", "skipped"),
            ("step_time", "step_time_s"),
            ("sec/iter", "step_time_s"),
        ),
        *(
            ("cri_loss", "cri_loss"),
            ("ppl", "ppl"),
            ("mAP_0.5", "mAP_0.5"),
        ),
        *(("act_grad_norm/layer.3", "act_grad_norm/layer.3"), ("param_checksum", "param_checksum")),
    ],
)
def test_other_metrics_are_known_under_their_usual_names(name: str, metric: str) -> None:
    assert meaning_of(name).metric == metric


@pytest.mark.parametrize(
    ("name", "metric"),
    [
        *(("val_loss", "eval_loss"), ("Validation Loss", "eval_loss"), ("Loss/validation", "eval_loss")),
        *(("valLoss", "eval_loss"), ("metrics/val_acc", "eval_acc"), ("val/box_loss", "eval_box_loss")),
        *(("test_acc1", "test_acc1"), ("eval_runtime", "eval_runtime"), ("dev loss", "eval_loss")),
    ],
)
def test_values_of_validation_never_become_metrics_of_training(name: str, metric: str) -> None:
    assert (meaning_of(name).metric, meaning_of(name).part) == (metric, Part.EVAL)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *(("training's binary_logloss", Loss.WEAK), ("train-merror", Loss.WEAK), ("train's l2", Loss.WEAK)),
        *(("Total neg log lik", Loss.WEAK), ("LanguageCrossEntropy", Loss.WEAK), ("learn", Loss.WEAK)),
        *(("perplexity-train", Loss.WEAK), ("training_deviance", Loss.WEAK), ("D_A", Loss.PLAYER)),
        *(("G_GAN", Loss.PLAYER), ("Err_G", Loss.PLAYER), ("l_g_pix", Loss.COMPONENT)),
        *(("closs", Loss.COMPONENT), ("D(x)", Loss.NONE), ("error_rate", Loss.NONE), ("l_rate", Loss.NONE)),
        *(("actor/entropy_loss", Loss.AUXILIARY), ("ce", Loss.WEAK), ("errs", Loss.WEAK)),
        *(("avr_loss", Loss.WHOLE), ("TrainLossPerSample", Loss.WHOLE), ("training's log loss", Loss.WHOLE)),
    ],
)
def test_what_stands_for_a_loss_that_no_name_says_outright_is_known(name: str, kind: Loss) -> None:
    assert meaning_of(name).loss is kind


@pytest.mark.parametrize(
    ("name", "role", "metric"),
    [
        *(("损失", Role.METRIC, "loss"), ("学习率", Role.CONTEXT, "lr"), ("Verlust", Role.METRIC, "loss")),
        *(("验证损失", Role.METRIC, "eval_loss"), ("L.r.", Role.CONTEXT, "lr")),
        *(("训练次数", Role.ITERATION, "step"), ("Ep.", Role.EPOCH, "epoch")),
    ],
)
def test_names_in_other_languages_are_known(name: str, role: Role, metric: str) -> None:
    assert (meaning_of(name).role, meaning_of(name).metric) == (role, metric)


def test_a_bare_word_for_validation_is_no_metric_of_training() -> None:
    assert meaning_of("test").part is Part.EVAL


def test_a_perplexity_is_judged_only_where_no_likelihood_is_there() -> None:
    assert metrics_of(roles_of("step | ppl | xent\n 1 | 9.2 | 2.2")) == {"ppl": "ppl", "xent": "loss"}
    assert metrics_of(roles_of("step | ppl\n 1 | 9.2")) == {"ppl": "loss"}
    assert metrics_of(roles_of("step | errs | ce\n 1 | 0.9 | 2.2")) == {"errs": "errs", "ce": "loss"}


def test_a_metric_of_another_tool_is_never_taken_for_a_part_of_a_built_in_one() -> None:
    assert meaning_of("loss/box").metric == "loss_box"
    assert meaning_of("grad_norm/encoder").metric == "grad_norm_encoder"


def test_no_name_of_a_counter_stands_in_two_places() -> None:
    assert len(set(ITERATION_NAMES)) == len(ITERATION_NAMES)


def test_milliseconds_of_an_iteration_are_made_seconds() -> None:
    assert meaning_of("elapsed time per iteration (ms)").scale == 1e-3


@pytest.mark.parametrize(
    "name", ["iteration", "trainer/global_step", "Step", "current_steps", "num_updates", "itr"]
)
def test_counters_are_known_under_many_names(name: str) -> None:
    assert meaning_of(name).role is Role.ITERATION


def test_the_value_of_a_step_is_the_loss_rather_than_its_mean() -> None:
    roles = roles_of("step | train_loss_epoch | train_loss_step\n 1 | 2 | 3")

    assert metrics_of(roles) == {"train_loss_epoch": "train_loss_epoch", "train_loss_step": "loss"}
    assert "train_loss_epoch" in roles.remarks[0]


def test_the_whole_is_the_loss_rather_than_a_part_of_it() -> None:
    roles = roles_of("iter | loss_cls | loss_bbox | total_loss\n 1 | 2 | 3 | 5")

    assert metrics_of(roles) == {"loss_cls": "loss_cls", "loss_bbox": "loss_bbox", "total_loss": "loss"}


def test_parts_without_a_whole_are_summed() -> None:
    roles = roles_of("epoch | train/box_loss | train/cls_loss | val/box_loss\n 0 | 1 | 2 | 3")

    assert roles.summed == ("train/box_loss", "train/cls_loss")
    assert "sum" in roles.remarks[-1]


def test_losses_of_players_are_not_summed_and_the_policy_leads() -> None:
    roles = roles_of("step | critic_loss | actor_loss | entropy_loss\n 1 | 2 | 3 | 4")

    assert (metrics_of(roles)["actor_loss"], roles.summed) == ("loss", ())


def test_a_small_term_beside_a_missing_loss_does_not_stand_for_it() -> None:
    assert "loss" not in metrics_of(roles_of("step | load_balancing_loss | lr\n 1 | 2 | 3")).values()


def test_a_loss_that_is_always_zero_or_missing_gives_way_to_one_that_is_not() -> None:
    assert metrics_of(roles_of("step | loss | total_loss\n1 | 0 | 2\n2 | 0 | 3"))["total_loss"] == "loss"
    assert metrics_of(roles_of("step | loss | total_loss\n1 | | 2\n2 | | 3"))["total_loss"] == "loss"


def test_a_loss_that_is_always_nan_does_not_give_way() -> None:
    roles = roles_of("step | loss | total_loss\n1 | nan | 2\n2 | nan | 3")

    assert metrics_of(roles)["loss"] == "loss"


def test_of_two_counters_the_one_that_tells_more_rows_apart_counts() -> None:
    roles = roles_of("step | iter | loss\n 0 | 1 | 2\n 0 | 2 | 2\n 0 | 3 | 2\n 1 | 4 | 2")

    assert roles.counter == "iter"


def test_a_constant_total_counts_nothing() -> None:
    roles = roles_of("total_steps | epoch | loss\n 100 | 1 | 2\n 100 | 2 | 2")

    assert roles.counter == "epoch"


def test_a_column_in_no_order_is_no_counter() -> None:
    roles = roles_of("episodes | loss\n 50 | 2\n 20 | 3\n 48 | 3\n 12 | 4\n 50 | 1")

    assert roles.counter == "row number"


def test_a_counter_of_few_rows_does_not_count_the_others() -> None:
    roles = roles_of("step | epoch | loss\n 1 | 1 | 2\n | 2 | 2\n | 3 | 3\n | 4 | 3")

    assert roles.counter == "epoch"


def test_a_person_may_say_what_a_column_is() -> None:
    roles = roles_of("n | loss | lm_loss\n 1 | 2 | 3", {"iteration": "n", "loss": "lm_loss"})

    assert (roles.counter, metrics_of(roles)) == ("n", {"loss": "loss.2", "lm_loss": "loss"})
    assert ("lm_loss", "loss") in roles.columns


def test_a_column_that_is_not_there_is_refused_with_those_that_are() -> None:
    with pytest.raises(UnreadableInput, match="--column loss=mlm: no such column; there is 'step', 'loss'"):
        roles_of("step | loss\n 1 | 2", {"loss": "mlm"})


def test_a_counter_that_does_not_count_is_refused() -> None:
    with pytest.raises(UnreadableInput, match="whole numbers"):
        roles_of("step | loss\n 1 | 2.5", {"iteration": "loss"})


def test_a_split_says_of_each_row_whether_it_is_of_validation() -> None:
    roles = roles_of("mode | epoch | loss\n train | 1 | 2\n val | 1 | 2")

    assert roles.split == 0
    assert roles_of("mode | epoch | loss\n fp16 | 1 | 2").split is None


def test_a_time_that_is_a_duration_stays_a_metric() -> None:
    assert roles_of("step | time | loss\n 1 | 0.25 | 2").identity == {}
    assert roles_of("step | time | loss\n 1 | 1700000000.5 | 2").identity == {"time": 1}
