"""The table of a study: shares of outcomes with intervals, beside those of the literature.

Literature: He et al., Understanding and Mitigating Hardware Failures in Deep
Learning Training Systems, ISCA 2023 (faults in the logic of accelerators, image and language models).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from .outcomes import Outcome
from .shares import Share
from .spec import Kind, Site
from .study import RECIPES, UNIT_SITES
from .study_results import NONFINITE, Result

Test = Callable[[Result], bool]
BIT_CLASSES: dict[str, tuple[int, int]] = {
    "mantissa, low (0–11)": (0, 11),
    "mantissa, high (12–22)": (12, 22),
    "exponent, low (23–26)": (23, 26),
    "exponent, high (27–29)": (27, 29),
    "exponent, top (30)": (30, 30),
    "sign (31)": (31, 31),
}


def is_computed_flip(one: Result) -> bool:
    """A single flip of what one rank computes: the cases that the literature's shares are about."""
    return one.kind is Kind.BIT_FLIP and one.site in UNIT_SITES


def share(results: Iterable[Result], test: Test) -> Share:
    """The share of results that pass ``test``."""
    passed = [test(one) for one in results]
    return Share(sum(passed), len(passed))


def trained_better(results: Iterable[Result]) -> Share:
    """Of harmless faults that changed anything at all, the share that ended with a lower loss."""
    changed = [one for one in results if one.is_harmless and not one.is_same]
    return share(changed, lambda one: one.end_change < 0)


def report(results: Sequence[Result]) -> str:
    """The whole table as Markdown, with the picture that `study_picture` makes beside it."""
    computed = [one for one in results if one.site in UNIT_SITES]
    flips = [one for one in computed if is_computed_flip(one)]
    all_flips = [one for one in results if one.kind is Kind.BIT_FLIP]
    parts = [
        _head(results),
        _against_literature(flips, computed),
        _outcomes("By kind, at these three sites", "kind", by_kind(results)),
        _outcomes("All kinds, at these three sites, by recipe", "recipe", by_recipe(computed)),
        _outcomes("Single flips, by site", "site", by_site(all_flips)),
        _outcomes("Single flips of computed values, by bit of the float32", "bits", by_bit_class(flips)),
        _notes(),
    ]
    return "\n\n".join(parts) + "\n"


def by_bit_class(results: Sequence[Result]) -> dict[str, list[Result]]:
    """Flips by what the bit is of the number."""
    return {
        name: [one for one in results if one.bit is not None and low <= one.bit <= high]
        for name, (low, high) in BIT_CLASSES.items()
    }


def _head(results: Sequence[Result]) -> str:
    seeds = len({one.seed for one in results})
    return (
        "# What single faults do to training\n\n"
        f"{len(results)} cases, {seeds} seed{'s' if seeds != 1 else ''}, {len(RECIPES)} recipes, a "
        "transformer of two layers on data-parallel ranks, each\nfaulty run held against its "
        "golden twin. Shares with 95 % intervals (Wilson) and counts. Written by `firstfault drill study`."
        "\n\n"
        "![Shares of outcomes as bars, by kind, recipe, bit and site](study.svg)"
    )


def _against_literature(flips: Sequence[Result], computed: Sequence[Result]) -> str:
    """The literature's faults are of logic: most change one value, some change many or last."""
    rows: list[tuple[str, str, Callable[[Sequence[Result]], Share]]] = [
        ("harmless: no effect, or benign jitter", "82.3–90.3 %", _part(lambda one: one.is_harmless)),
        ("of these slight jitter", "2–6 % of all", _part(lambda one: one.outcome == Outcome.BENIGN_JITTER)),
        ("training affected", "9.7–17.7 %", _part(lambda one: not one.is_harmless)),
        ("non-finite", "–", _part(lambda one: one.outcome in NONFINITE)),
        ("of the harmless that changed anything, trained even better", "65.5–86.3 %", trained_better),
        ("masked: every logged loss equals the twin's", "–", _part(lambda one: one.is_same)),
    ]
    lines = ["## Faults of what one rank computes: activation, activation gradient, weight gradient", ""]
    lines += ["| share | He et al. | single flips | all kinds |", "| --- | --- | --- | --- |"]
    for name, known, of in rows:
        lines.append(f"| {name} | {known} | {of(flips).text()} | {of(computed).text()} |")
    return "\n".join(lines)


def _part(test: Test) -> Callable[[Sequence[Result]], Share]:
    return lambda results: share(results, test)


def _outcomes(title: str, column: str, groups: dict[str, list[Result]]) -> str:
    lines = [
        f"## {title}",
        "",
        f"| {column} | cases | harmless | degrades | non-finite | harmless, trained better |",
    ]
    lines.append("| --- | --- | --- | --- | --- | --- |")
    for name, found in groups.items():
        if found:
            cells = [
                share(found, lambda one: one.is_harmless),
                share(found, lambda one: not one.is_harmless and one.outcome not in NONFINITE),
                share(found, lambda one: one.outcome in NONFINITE),
                trained_better(found),
            ]
            lines.append(f"| {name} | {len(found)} | " + " | ".join(_short(cell) for cell in cells) + " |")
    return "\n".join(lines)


def _short(one: Share) -> str:
    low, high = one.interval()
    return f"{100 * one.value:.1f} % ({100 * low:.0f}–{100 * high:.0f})" if one.total else "–"


def by_recipe(results: Sequence[Result]) -> dict[str, list[Result]]:
    """Results by training recipe."""
    return {name: [one for one in results if one.recipe == name] for name in RECIPES}


def by_site(results: Sequence[Result]) -> dict[str, list[Result]]:
    """Results by site."""
    return {site.value: [one for one in results if one.site is site] for site in Site}


def by_kind(results: Sequence[Result]) -> dict[str, list[Result]]:
    """Results at the sites of computed values, by kind and size of the fault."""
    computed = [one for one in results if one.site in UNIT_SITES]
    found: dict[str, list[Result]] = {}
    for one in computed:
        name = f"{one.kind.value} of {one.magnitude:g}" if one.kind is Kind.RELATIVE_ERROR else one.kind.value
        found.setdefault(name, []).append(one)
    return dict(sorted(found.items()))


def _notes() -> str:
    return (
        "Outcomes are by the loss against the twin's: *harmless* ends within one standard deviation of the "
        "loss from point to point\n(mean of the last tenth); *jitter* left that noise and came back. The "
        "literature judges by accuracy, on models of other sizes,\nand flips any flip-flop of an accelerator "
        "(here every bit of a float32 is as likely as any other). Compare, do not equate.\n"
        "All recipes get the same faults, so that tables which pool them are a little surer than they look.\n"
        "SGD with momentum learns this model slowly: it ends about 0.1 nats below a uniform guess, AdamW 0.4."
    )
