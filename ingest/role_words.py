"""What a single name says: a column of a table, a key of a record, a word before a colon.

A name is taken apart into words (``Loss/train``, ``train_loss``, ``trainLoss`` and ``Train Loss`` are the
same two), and the words that only say where or how often something is measured are set aside. What
is left decides. Names alone: what the values say on top is in `roles`.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache

from firstfault.telemetry import Kind, contract_of

from .role_meaning import Loss, Meaning, Part
from .role_names import COUNTERS_BEHIND_SLASH, ITERATION_NAMES, SPELLED, TOTALS, Role
from .role_translations import TRANSLATIONS
from .role_vocabulary import (
    ALGORITHMS,
    AUXILIARY,
    AVERAGED,
    CONTEXT,
    EVAL,
    EVALUATION,
    FOREIGN_EVAL,
    HOW_OFTEN,
    KIND_OF_LOSS,
    LEADS,
    MAIN,
    MILLISECONDS,
    NORM_EXTRA,
    PLAYER,
    PLAYERS,
    POSSESSIVE,
    RATE_EXTRA,
    SAME,
    SCOPED_HERE,
    SECONDS,
    SKIP_WORDS,
    TERM,
    TEST,
    TIME_WORDS,
    TRAIN,
    WEAK_LOSS,
    WEAKER_LOSS,
    WHOLE,
    WORD,
)

__all__ = ["Loss", "Meaning", "Part", "meaning_of", "spelling", "words_of"]

MAX_NAME = 256
"""Characters of a name that are looked at; longer ones are text, not names."""


DEEP = 3
"""Slashes from which on a name is a path, whose last part says what it is: ``info/learner/…/total_loss``."""
_KNOWN = frozenset({"loss", "grad_norm", "lr", "loss_scale"})


def spelling(name: str) -> str:
    """A name in the one form in which names are compared.

    >>> spelling(" Global-Step ")
    'global_step'
    """
    bare = name.strip().strip("\"'").strip(" .:=")
    return bare.lower().replace(" ", "_").replace("-", "_")


@lru_cache(maxsize=16384)
def meaning_of(name: str) -> Meaning:
    """What ``name`` says by itself.

    >>> meaning_of("lm loss").metric, meaning_of("Loss/validation").metric, meaning_of("cri_loss").metric
    ('loss', 'eval_loss', 'cri_loss')
    >>> meaning_of("trainer/global_step").role
    <Role.ITERATION: 'iteration'>
    """
    spelled = spelling(name[:MAX_NAME])
    if spelled in TRANSLATIONS:
        return meaning_of(TRANSLATIONS[spelled])
    if contract_of(spelled).is_built_in and spelled.partition("/")[0] not in SCOPED_HERE - {spelled}:
        return _built_in(spelled)
    counted, slash, _ = spelled.partition("/")
    if slash and counted in ITERATION_NAMES and _is_total(spelled[len(counted) + 1 :]):  # "3/547"
        return Meaning(Role.ITERATION, name.strip(), ITERATION_NAMES.index(counted))
    if spelled in SPELLED:
        role, order = SPELLED[spelled]
        return Meaning(role, name.strip(), order)
    if (last := spelled.rpartition("/")[2]) != spelled and last in COUNTERS_BEHIND_SLASH:
        return Meaning(Role.ITERATION, name.strip(), SPELLED[last][1])
    if spelled in EVAL | TEST:
        return Meaning(Role.METRIC, name.strip(), part=Part.EVAL)
    for role, pattern in TOTALS:
        if pattern.fullmatch(spelled):
            return Meaning(role, name.strip())
    if spelled.count("/") >= DEEP:
        inner = _of_training(name.rpartition("/")[2], words_of(name.rpartition("/")[2]))
        if inner is not None and inner.metric in _KNOWN and _of_evaluation(name) is None:
            return replace(inner, order=inner.order + 5 * spelled.count("/"))
    words = words_of(name)
    said = _of_evaluation(name) or _of_training(name, words) or _of_path(name, spelled)
    return said or _of_context(name, spelled)


def _of_path(name: str, spelled: str) -> Meaning | None:
    """A counter, an epoch or a rank inside an object (``data/step``), if nothing else says it."""
    path, slash, last = spelled.rpartition("/")
    if not slash or last not in SPELLED or not EVAL.isdisjoint(path.split("/")):
        return None
    role, order = SPELLED[last]
    if role not in (Role.ITERATION, Role.EPOCH, Role.RANK, Role.TIME):
        return None
    return Meaning(role, name.strip(), order + len(ITERATION_NAMES))


def _is_total(spelled: str) -> bool:
    return any(pattern.fullmatch(spelled) for _, pattern in TOTALS)


def words_of(name: str) -> tuple[str, ...]:
    """The words of a name, in lower case.

    >>> words_of("RPNLogLoss"), words_of("Loss/train"), words_of("gnorm")
    (('rpn', 'log', 'loss'), ('loss', 'train'), ('grad', 'norm'))
    """
    found: list[str] = []
    for word in WORD.findall(POSSESSIVE.sub("", name[:MAX_NAME])):
        lower = word.lower()
        glued = lower.endswith("loss") and len(lower) > len("loss") and lower not in WEAK_LOSS
        found += SAME.get(lower, (lower[: -len("loss")], "loss") if glued else (lower,))
    joined = " ".join(found).replace("learning rate", "lr").replace("cross entropy", "crossentropy")
    joined = joined.replace("negative log lik", "nll").replace("neg log lik", "nll")
    return tuple(joined.split())


def _of_evaluation(name: str) -> Meaning | None:
    """Names that begin or end with a word for validation or test, behind a slash too."""
    spelled = spelling(name[:MAX_NAME])
    if not name.isascii() and FOREIGN_EVAL.search(name):
        inner = _of_training(name, words_of(name))
        return Meaning(Role.METRIC, "eval_loss" if inner and inner.metric == "loss" else name, part=Part.EVAL)
    found = EVALUATION.fullmatch(spelled) or EVALUATION.fullmatch(spelled.rpartition("/")[2])
    words = words_of(name)
    if found is None and len(words) == 2 and words[0] in EVAL | TEST:  # valLoss
        word, rest = words
    elif found is None:
        return None
    else:
        word = found["first"] or found["last"]
        rest = found["behind"] or found["before"]
    prefix = "test" if word in TEST else "eval"
    inner = _of_training(rest, words_of(rest))
    is_whole = inner is not None and inner.loss is Loss.WHOLE
    return Meaning(Role.METRIC, f"{prefix}_{'loss' if is_whole else rest}", part=Part.EVAL)


def _of_training(name: str, words: tuple[str, ...]) -> Meaning | None:
    # Words that say where and how often are set aside, and cost a place: the plain name is the best.
    kept = [word for word in words if word not in TRAIN and word not in HOW_OFTEN]
    order = 10 * (len(words) - len(kept)) + (100 if any(word in AVERAGED for word in kept) else 0)
    kept = [word for word in kept if word not in AVERAGED]
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
    rest = [word for word in kept if word not in NORM_EXTRA]
    if "norm" in rest and set(rest) == {"grad", "norm"}:
        return Meaning(Role.METRIC, "grad_norm", order + len(kept) - len(rest))
    if set(rest) - {"policy", "actor"} == {"grad", "norm"}:  # of the player whose loss is judged
        return Meaning(Role.METRIC, "grad_norm", order + 100)
    if rest == ["norm"] and len(kept) <= 2:
        return Meaning(Role.METRIC, "grad_norm", order + 200)
    return None


def _of_rate(kept: list[str], order: int) -> Meaning | None:
    words = [re.sub(r"\d+$", "", word) for word in kept]
    if "lr" not in words:
        return None
    rest = [word for word in words if word not in ("lr", "") and word not in RATE_EXTRA]
    return Meaning(Role.CONTEXT, "lr", order + 10 * (len(kept) - 1) + 500 * len(rest))


def _of_step_time(words: tuple[str, ...], order: int) -> Meaning | None:
    """Seconds of one iteration, where the name leaves no doubt of it."""
    said = set(words)
    if not said <= TIME_WORDS or not said & {"step", "iter", "iteration"}:
        return None
    if not said & SECONDS or len(words) < 2:
        return None
    return Meaning(Role.CONTEXT, "step_time_s", order, 1e-3 if said & MILLISECONDS else 1.0)


def _of_skips(words: tuple[str, ...]) -> Meaning | None:
    if "skipped" not in words or not set(words) <= SKIP_WORDS:
        return None
    return Meaning(Role.CONTEXT, "skipped", len(words))


def _of_loss(name: str, kept: list[str], words: tuple[str, ...], order: int) -> Meaning | None:
    own = _own_name(name)
    if "loss" in kept or "losses" in words:
        rest = [word for word in kept if word not in ("loss", "log") and word not in WHOLE]
        if set(kept) & WHOLE and set(rest) <= ALGORITHMS:
            rest = []
        order += 5 * len([word for word in kept if word in WHOLE])
        if not rest:
            return Meaning(Role.METRIC, "loss", order, loss=Loss.WHOLE)
        if set(rest) <= MAIN:
            return Meaning(Role.METRIC, "loss", order + 200 + len(rest), loss=Loss.WHOLE)
        if set(rest) & AUXILIARY:
            return Meaning(Role.METRIC, own, order, loss=Loss.AUXILIARY)
        if set(rest) & PLAYERS:
            lead = next((at for at, word in enumerate(LEADS) if word in rest), len(LEADS))
            return Meaning(Role.METRIC, own, order + 10 * lead, loss=Loss.PLAYER)
        return Meaning(Role.METRIC, own, order, loss=Loss.COMPONENT)
    if PLAYER.fullmatch(name.strip()):  # without the word, any with it goes before
        return Meaning(Role.METRIC, own, order + 500 + 10 * (name.strip()[0] != "G"), loss=Loss.PLAYER)
    if TERM.fullmatch(name.strip()) and kept[-1] not in ("r", "rate"):
        return Meaning(Role.METRIC, own, order, loss=Loss.COMPONENT)
    return _of_weak_loss(own, kept, words, order)


def _of_weak_loss(own: str, kept: list[str], words: tuple[str, ...], order: int) -> Meaning | None:
    """Errors, likelihoods, perplexities, and a bare ``learn:``, each less sure than the one before."""
    core = [word for word in kept if word not in KIND_OF_LOSS and word not in WHOLE]
    if (core and set(core) <= WEAK_LOSS) or kept in (["l", "1"], ["l", "2"]):
        return Meaning(Role.METRIC, own, order + 1000, loss=Loss.WEAK)
    if core and set(core) <= WEAKER_LOSS:
        return Meaning(Role.METRIC, own, order + 1200, loss=Loss.WEAK)
    if words and not kept and set(words) <= TRAIN:
        return Meaning(Role.METRIC, own, 1400, loss=Loss.WEAK)
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
    return f"{base}_{rest}" if slash and spelling(base) in SCOPED_HERE else name.strip()


def _of_context(name: str, spelled: str) -> Meaning:
    is_context = CONTEXT.search(spelled) is not None
    return Meaning(Role.CONTEXT if is_context else Role.METRIC, _own_name(name))
