"""Models that ranks hold parts of compute what one model does."""

from __future__ import annotations

from typing import Any

import pytest

from firstfault.drill.rig import LayoutName

from .layout_builders import layout_job

pytestmark = pytest.mark.torch


def test_stages_and_tensor_parts_give_the_gradient_of_the_whole_model() -> None:
    import torch

    from firstfault.drill.rig.reading import Reader
    from firstfault.drill.rig.rows import gradients
    from firstfault.drill.rig.stages import TIED, StagedModel, _share

    job = layout_job(LayoutName.PP4_TP2_DP2)
    shards = Reader(job).shards([(replica, 0, 0) for replica in range(2)])
    whole, parts = (StagedModel(job.model, *split, job.seed) for split in ((1, 2, 1), (4, 4, 2)))
    found = []
    for model, repeats in ((whole, 1), (parts, 2)):
        tokens, features = (
            one.repeat_interleave(repeats, 0) for one in (shards.tokens_HBS, shards.features_HBLF)
        )
        x = model.hidden(tokens[:, :, :-1], features, lambda site, place, value, part: value)
        loss_H = model.stages[-1].losses(
            x, tokens[:, :, 1:].flatten(1), lambda site, place, value, part: value, _no_faults(len(tokens))
        )
        found.append((loss_H, gradients(loss_H.sum(), [stage.rows for stage in model.stages])))
    (loss_2, (whole_2P,)), (loss_4, parts_4P) = found
    assert torch.allclose(loss_2.repeat_interleave(2), loss_4)
    for stage, grad_4P in zip(parts.stages, parts_4P, strict=True):
        for name, place in stage.rows.places.items():
            expected_2 = whole_2P[:, whole.stages[0].rows.places[name]]
            for row in range(4):
                got = grad_4P[row, place]
                if name == TIED:
                    both = [parts_4P[at][row, parts.stages[at].rows.places[name]] for at in (0, -1)]
                    got = both[0] + both[1]
                shape = whole.stages[0].rows.named[name].shape[1:]
                share = _share(name, expected_2[row // 2].view(shape), row % 2, 2)
                assert torch.allclose(got, share.reshape(-1), atol=1e-6), name


def test_tokens_find_their_expert_and_come_back() -> None:
    import torch
    from torch.nn import functional

    from firstfault.drill.rig.experts import ExpertModel

    model = ExpertModel(layout_job(LayoutName.EXPERT).model, 8, 4, seed=0)
    model.dense.named["router"].data.mul_(20.0)  # uneven: some tokens find no place
    h_HND = torch.randn(8, 32, 16, generator=torch.Generator().manual_seed(1))
    added, _ = model._sparse(h_HND, "layer1", lambda site, place, value, part: value)
    chance = torch.bmm(h_HND, model.dense.named["router"]).softmax(-1)
    weight, choice = chance.max(-1)
    dropped = 0
    for rank in range(8):
        filled = [0] * 4
        for token in range(32):
            expert = int(choice[rank, token])
            filled[expert] += 1
            owner = rank - rank % 4 + expert
            up, down = (model.sparse.named[name][owner] for name in ("up", "down"))
            answer = functional.gelu(h_HND[rank, token] @ up) @ down * weight[rank, token]
            is_dropped = filled[expert] > 16
            dropped += is_dropped
            expected = torch.zeros(16) if is_dropped else answer
            assert torch.allclose(added[rank, token], expected, atol=1e-5)
    assert dropped
    assert int(model.load_H.sum()) == 8 * 32 - dropped


def _no_faults(ranks: int) -> Any:
    from firstfault.drill.rig.faults import Faults

    return Faults(layout_job(LayoutName.DP), range(ranks))
