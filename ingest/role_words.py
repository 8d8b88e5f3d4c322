"""What a single name says: a column of a table, a key of a record, a word before a colon.

A name is taken apart into words (``Loss/train``, ``train_loss``, ``trainLoss`` and ``Train Loss`` are the
same two), and the words that only say where or how often something is measured are set aside. What
is left decides. Names alone: what the values say on top is in `roles`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from firstfault.telemetry import Kind, contract_of

from .role_names import SPELLED, TOTALS, Role

MAX_NAME = 256
"""Characters of a name that are looked at; longer ones are text, not names."""


class Part(StrEnum):
    """Of which part of a loop a metric is."""

    TRAIN = "train"
    EVAL = "eval"


class Loss(StrEnum):
    """What a metric has to do with the loss of training."""

    NONE = "none"
    WHOLE = "whole"
    COMPONENT = "component"
    """One of several terms whose sum is the whole."""
    PLAYER = "player"
    """That of one of several players (policy and value, generator and discriminator): a sum means nothing."""
    AUXILIARY = "auxiliary"
    """A small term beside the whole, which never stands for it."""
    WEAK = "weak"
    """An error that is the loss of some loops (``rmse``, ``nll``) and a metric in others."""


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a name says.

    ``metric`` is the canonical name of a metric, or the name itself. Where several names of one log say
    the same, the one of lowest ``order`` is it. Values times ``scale`` are in the unit of the metric.
    ``loss`` says how a metric that is not called the loss may still stand for it.
    """

    role: Role
    metric: str = ""
    order: int = 0
    scale: float = 1.0
    part: Part = Part.TRAIN
    loss: Loss = Loss.NONE


def _set_of(text: str) -> frozenset[str]:
    return frozenset(text.split())


_EVAL = _set_of("val vali valid validation validate eval evaluation dev heldout holdout")
_TEST = _set_of("test tst testing")
_EITHER = "|".join(sorted(_EVAL | _TEST))
_EVALUATION = re.compile(
    rf"(?P<first>{_EITHER})[_/. :]+(?P<behind>.+)|(?P<before>.+?)[_/. :]+(?P<last>{_EITHER})"
)
_TRAIN = _set_of("train training trn tr trainer learn learner")
_HOW_OFTEN = _set_of(
    "step steps iter iteration batch minibatch mini inner cur curr current last raw log logs metric metrics"
    " stat stats scalar scalars value item perf per losses optim now actual"
)
_AVERAGED = _set_of("avg average mean running smooth smoothed smoothing ema moving median epoch interval win")
_WHOLE = _set_of("total tot overall all sum full combined final global reduced main model accumulated")
_MAIN = _set_of(
    "lm nll ce xent crossentropy mlm clm ar causal language modeling masked pretrain pretraining sft token"
    " tokens gpt ntp next base task objective dpo ctc mse"
)
_WEAK_LOSS = _set_of(
    "nll xent crossentropy mlm clm logloss mlogloss elbo cost objective mse rmse mae bpc bpb"
)
_AUXILIARY = _set_of(
    "aux auxiliary balancing balance z router kl kld reg regularization regularizer commitment commit"
    " consistency entropy ent penalty gp alpha temperature contrastive weight decay"
)
_LEADS = ("policy", "actor", "act", "pi", "pg", "surrogate", "g", "gen", "generator")
_PLAYERS = _set_of("value vf critic cri q qf v discriminator disc dis d adversarial adv real fake").union(
    _LEADS
)
"""Words of the losses of players, of which a leading one is judged where there is no whole."""
_SAME = {
    "gnorm": ("grad", "norm"),
    "gradnorm": ("grad", "norm"),
    "gradients": ("grad",),
    "gradient": ("grad",),
    "trainloss": ("train", "loss"),
    "tloss": ("train", "loss"),
    "trl": ("train", "loss"),
    "tel": ("test", "loss"),
    "valloss": ("val", "loss"),
    "vloss": ("val", "loss"),
    "evalloss": ("eval", "loss"),
    "testloss": ("test", "loss"),
    "totalloss": ("total", "loss"),
    "learningrate": ("lr",),
    "lossscale": ("loss", "scale"),
    "gradscale": ("grad", "scale"),
    "lossscaler": ("loss", "scale"),
    "logloss": ("logloss",),
}
_NORM_EXTRA = _set_of(
    "global total l 2 0 before pre preclip unclipped clip clipping optim parameter params sum"
)
_RATE_EXTRA = _set_of(
    "adam adamw sgd lion adafactor rmsprop lamb w pg group param parameter x optim optimizer"
)
_MILLISECONDS = _set_of("ms msec millis milliseconds")
_SECONDS = _set_of("time s sec secs seconds duration") | _MILLISECONDS
_TIME_WORDS = _set_of("per step iter iteration elapsed train avg") | _SECONDS
_SKIP_WORDS = _set_of("number num n of skipped step steps iter iterations iteration updates update")
_CONTEXT = re.compile(
    r"(^|[^a-z])(time|times|sec|secs|seconds|s|ms|epoch|epochs|tokens|samples|step|steps|iter|iters|num|count|lr|lrs"
    r"|learning|throughput|memory|mem|elapsed|eta)\d*([^a-z]|$)"
)
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_SCOPED_HERE = frozenset(
    {"loss", "global_loss", "lr", "grad_norm", "loss_scale", "tokens", "skipped", "step_time_s"}
)
"""Built-in metrics that have no scopes: what stands behind a slash is another tool's way of naming."""


def spelling(name: str) -> str:
    """A name in the one form in which names are compared.

    >>> spelling(" Global-Step ")
    'global_step'
    """
    return name.strip().strip("\"'").strip().lower().replace(" ", "_").replace("-", "_")


@lru_cache(maxsize=16384)
def meaning_of(name: str) -> Meaning:
    """What ``name`` says by itself.

    >>> meaning_of("lm loss").metric, meaning_of("Loss/validation").metric, meaning_of("cri_loss").metric
    ('loss', 'eval_loss', 'cri_loss')
    >>> meaning_of("trainer/global_step").role
    <Role.ITERATION: 'iteration'>
    """
    spelled = spelling(name[:MAX_NAME])
    if contract_of(spelled).is_built_in and spelled.partition("/")[0] not in _SCOPED_HERE - {spelled}:
        return _built_in(spelled)
    if spelled in SPELLED:
        role, order = SPELLED[spelled]
        return Meaning(role, name.strip(), order)
    for role, pattern in TOTALS:
        if pattern.fullmatch(spelled):
            return Meaning(role, name.strip())
    words = words_of(name)
    return _of_evaluation(name) or _of_training(name, words) or _of_context(name, spelled)


def words_of(name: str) -> tuple[str, ...]:
    """The words of a name, in lower case.

    >>> words_of("RPNLogLoss"), words_of("Loss/train"), words_of("gnorm")
    (('rpn', 'log', 'loss'), ('loss', 'train'), ('grad', 'norm'))
    """
    found: list[str] = []
    for word in _WORD.findall(name[:MAX_NAME]):
        lower = word.lower()
        found += _SAME.get(lower, (lower,))
    joined = " ".join(found).replace("learning rate", "lr").replace("cross entropy", "crossentropy")
    return tuple(joined.split())


def _of_evaluation(name: str) -> Meaning | None:
    """Names that begin or end with a word for validation or test, behind a slash too."""
    spelled = spelling(name[:MAX_NAME])
    found = _EVALUATION.fullmatch(spelled) or _EVALUATION.fullmatch(spelled.rpartition("/")[2])
    words = words_of(name)
    if found is None and len(words) == 2 and words[0] in _EVAL | _TEST:  # valLoss
        word, rest = words
    elif found is None:
        return None
    else:
        word = found["first"] or found["last"]
        rest = found["behind"] or found["before"]
    prefix = "test" if word in _TEST else "eval"
    inner = _of_training(rest, words_of(rest))
    is_whole = inner is not None and inner.loss is Loss.WHOLE
    return Meaning(Role.METRIC, f"{prefix}_{'loss' if is_whole else rest}", part=Part.EVAL)


def _of_training(name: str, words: tuple[str, ...]) -> Meaning | None:
    # Words that say where and how often are set aside, and cost a place: the plain name is the best.
    kept = [word for word in words if word not in _TRAIN and word not in _HOW_OFTEN]
    order = 10 * (len(words) - len(kept)) + (100 if any(word in _AVERAGED for word in kept) else 0)
    kept = [word for word in kept if word not in _AVERAGED]
    return (
        _of_scale(kept, order)
        or _of_norm(kept, order)
        or _of_rate(kept, order)
        or _of_step_time(words, order)
        or _of_skips(words)
        or _of_loss(name, kept, words, order)
    )


def _of_scale(kept: list[str], order: int) -> Meaning | None:
    rest = {word for word in kept if word not in ("amp", "fp16", "dynamic")}
    is_scale = rest in (
        {"loss", "scale"},
        {"loss", "scaling"},
        {"loss", "scaler"},
        {"grad", "scale"},
        {"scaler"},
    )
    if not is_scale and rest not in ({"scaler", "scale"}, {"grad", "scaler"}, {"grad", "scaling"}):
        return None
    return Meaning(Role.CONTEXT, "loss_scale", order + (20 if "loss" not in rest else 0))


def _of_norm(kept: list[str], order: int) -> Meaning | None:
    rest = [word for word in kept if word not in _NORM_EXTRA]
    if "norm" in rest and set(rest) == {"grad", "norm"}:
        return Meaning(Role.METRIC, "grad_norm", order + len(kept) - len(rest))
    if rest == ["norm"] and len(kept) <= 2:
        return Meaning(Role.METRIC, "grad_norm", order + 200)
    return None


def _of_rate(kept: list[str], order: int) -> Meaning | None:
    words = [re.sub(r"\d+$", "", word) for word in kept]
    if "lr" not in words:
        return None
    rest = [word for word in words if word not in ("lr", "") and word not in _RATE_EXTRA]
    return Meaning(Role.CONTEXT, "lr", order + 10 * (len(kept) - 1) + 500 * len(rest))


def _of_step_time(words: tuple[str, ...], order: int) -> Meaning | None:
    """Seconds of one iteration, where the name leaves no doubt of it."""
    said = set(words)
    if not said <= _TIME_WORDS or not said & {"step", "iter", "iteration"}:
        return None
    if not said & _SECONDS or len(words) < 2:
        return None
    return Meaning(Role.CONTEXT, "step_time_s", order, 1e-3 if said & _MILLISECONDS else 1.0)


def _of_skips(words: tuple[str, ...]) -> Meaning | None:
    if "skipped" not in words or not set(words) <= _SKIP_WORDS:
        return None
    return Meaning(Role.CONTEXT, "skipped", len(words))


def _of_loss(name: str, kept: list[str], words: tuple[str, ...], order: int) -> Meaning | None:
    own = _own_name(name)
    if "loss" in kept or "losses" in words:
        rest = [word for word in kept if word not in ("loss", "log") and word not in _WHOLE]
        order += 5 * len([word for word in kept if word in _WHOLE])
        if not rest:
            return Meaning(Role.METRIC, "loss", order, loss=Loss.WHOLE)
        if set(rest) <= _MAIN:
            return Meaning(Role.METRIC, "loss", order + 200 + len(rest), loss=Loss.WHOLE)
        if set(rest) & _PLAYERS:
            lead = next((at for at, word in enumerate(_LEADS) if word in rest), len(_LEADS))
            return Meaning(Role.METRIC, own, order + 10 * lead, loss=Loss.PLAYER)
        kind = Loss.AUXILIARY if set(rest) & _AUXILIARY else Loss.COMPONENT
        return Meaning(Role.METRIC, own, order, loss=kind)
    if kept and set(kept) <= _WEAK_LOSS:
        return Meaning(Role.METRIC, own, order + 1000, loss=Loss.WEAK)
    return None


def _built_in(spelled: str) -> Meaning:
    is_context = contract_of(spelled).kind is Kind.CONTEXT
    return Meaning(
        Role.CONTEXT if is_context else Role.METRIC,
        spelled,
        loss=Loss.WHOLE if spelled == "loss" else Loss.NONE,
    )


def _own_name(name: str) -> str:
    """The name as it is, but none that the contracts would take for a part of another metric."""
    base, slash, rest = name.strip().partition("/")
    return f"{base}_{rest}" if slash and spelling(base) in _SCOPED_HERE else name.strip()


def _of_context(name: str, spelled: str) -> Meaning:
    is_context = _CONTEXT.search(spelled) is not None
    return Meaning(Role.CONTEXT if is_context else Role.METRIC, _own_name(name))
