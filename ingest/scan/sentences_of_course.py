"""Sentences about the course of a run: checkpoints, resumes, the learning rate, its end."""

from __future__ import annotations

from firstfault.telemetry import EventKind

from .sentence_forms import NUM, ended, objective, say

_SAVED, _RESUMED = EventKind.CHECKPOINT, EventKind.RESUME

CHECKPOINTS = (
    say(
        "megatron_saved",
        "Megatron",
        "a checkpoint is complete",
        "successfully saved checkpoint",
        r"successfully saved checkpoint from iteration +(?P<iteration>\d+)(?: to (?P<path>\S{1,400}))?",
        "  successfully saved checkpoint from iteration    1000 to /ckpt",
        event=_SAVED,
        fields={"complete": True},
    ),
    say(
        "megatron_loaded",
        "Megatron",
        "training goes on from a checkpoint",
        "successfully loaded checkpoint",
        r"successfully loaded checkpoint from (?P<path>\S{1,400}) .{0,80}?at iteration +(?P<iteration>\d+)",
        " successfully loaded checkpoint from /ckpt [ t 1/2, p 1/1 ] at iteration 1000",
        event=_RESUMED,
    ),
    say(
        "deepspeed_saved",
        "DeepSpeed",
        "a checkpoint is complete",
        ("[Torch] Saved ", "zero checkpoint saved ", "Saving model checkpoint: "),
        r"(?:\[Torch\] Saved|zero checkpoint saved|Saving model checkpoint:) "
        r"(?P<path>\S{0,300}?global_step(?P<iteration>\d+))[/\s]",
        "[INFO] [torch_checkpoint_engine.py:33:commit] [Torch] Saved"
        " out/global_step500/mp_rank_00_model_states.pt.",
        event=_SAVED,
    ),
    say(
        "hf_saved",
        "HF Trainer",
        "a checkpoint is written",
        "Saving model checkpoint to ",
        r"Saving model checkpoint to (?P<path>\S{0,300}?checkpoint-(?P<iteration>\d+))\b",
        "Saving model checkpoint to out/checkpoint-500",
        event=_SAVED,
    ),
    say(
        "hf_resumed",
        "HF Trainer",
        "training goes on from a checkpoint",
        "Continuing training from global step",
        r"Continuing training from global step (?P<iteration>\d+)",
        "  Continuing training from global step 500",
        event=_RESUMED,
    ),
    say(
        "lightning_saved",
        "Lightning, NeMo",
        "a checkpoint is written",
        "saving model to ",
        r"global step (?P<iteration>\d+): .{0,200}?saving model to '?(?P<path>[^'\s]{1,400})",
        "Epoch 1, global step 1000: 'val_loss' reached 0.30000 (best 0.30000), saving model to"
        " '/x/epoch=1-step=1000.ckpt' as top 1",
        event=_SAVED,
    ),
    say(
        "keras_saved",
        "Keras",
        "a checkpoint is written",
        "saving model to ",
        r"Epoch \d+: .{1,200}?, saving model to (?P<path>\S{1,400})",
        "Epoch 3: val_loss improved from 0.4 to 0.3, saving model to m.keras",
        event=_SAVED,
    ),
    say(
        "lightning_restored",
        "Lightning",
        "training goes on from a checkpoint",
        "states from the checkpoint ",
        r"Restor(?:ing|ed all) states from the checkpoint (?:path )?at (?P<path>\S{0,300}?(?:step="
        r"(?P<iteration>\d+))?\.ckpt)",
        "Restored all states from the checkpoint at /x/epoch=1-step=1000.ckpt",
        event=_RESUMED,
    ),
    say(
        "fairseq_saved",
        "fairseq",
        "a checkpoint is written",
        "aved checkpoint ",
        r"[Ss]aved checkpoint (?P<path>\S{1,400}) \(epoch \d+ @ (?P<iteration>\d+) updates",
        "| saved checkpoint c/checkpoint3.pt (epoch 3 @ 1000 updates)",
        event=_SAVED,
    ),
    say(
        "fairseq_loaded",
        "fairseq",
        "training goes on from a checkpoint",
        "oaded checkpoint ",
        r"[Ll]oaded checkpoint (?P<path>\S{1,400}) \(epoch \d+ @ (?P<iteration>\d+) updates",
        "| loaded checkpoint c/checkpoint3.pt (epoch 3 @ 1000 updates)",
        event=_RESUMED,
    ),
    say(
        "caffe_saved",
        "Caffe",
        "a checkpoint is written",
        "Snapshotting to ",
        r"Snapshotting to (?:binary proto file )?(?P<path>\S{0,300}?_iter_(?P<iteration>\d+)\S{0,40})",
        "Snapshotting to caffe_train_iter_200",
        event=_SAVED,
    ),
    say(
        "mmcv_saved",
        "MMCV, MMEngine",
        "a checkpoint is written",
        "Saving checkpoint at ",
        r"Saving checkpoint at (?P<iteration>\d+) iterations",
        "mmseg - INFO - Saving checkpoint at 4000 iterations",
        event=_SAVED,
    ),
    say(
        "mmcv_resumed",
        "MMCV, MMEngine",
        "training goes on from a checkpoint",
        "esumed epoch",
        r"resumed (?:from )?epoch:? \d+, iter:? (?P<iteration>\d+)",
        "mmdet - INFO - resumed epoch 3, iter 1000",
        event=_RESUMED,
    ),
    say(
        "detectron2_saved",
        "detectron2",
        "a checkpoint is written",
        "Saving checkpoint to ",
        r"Saving checkpoint to (?P<path>\S{0,300}?model_(?P<iteration>\d+)\.pth)",
        "fvcore.common.checkpoint INFO: Saving checkpoint to ./out/model_0004999.pth",
        event=_SAVED,
    ),
    say(
        "titan_loaded",
        "TorchTitan",
        "training goes on from a checkpoint",
        "oading the checkpoint at step ",
        r"[Ll]oading the checkpoint at step (?P<iteration>\d+)",
        "[titan] Loading the checkpoint at step 1000.",
        event=_RESUMED,
    ),
    say(
        "checkpoint_step",
        "many trainers",
        "a checkpoint is written, with its step in its name",
        ("aved ", "aving ", "rote "),
        r"\b(?i:saved|saving|wrote)\b(?=.{0,120}?(?i:checkpoint|ckpt|model|weights|state))"
        r".{0,200}?[/_\s-](?i:global_?step|step|iter|iteration|checkpoint|ckpt)[-_= ]?"
        r"(?P<iteration>\d{1,15})\b",
        "Saved checkpoint to out/step_1000.pt",
        event=_SAVED,
        takes_line=False,
    ),
    say(
        "resume_step",
        "many trainers",
        "training goes on from a step",
        ("esum",),
        r"\b(?i:resum(?:e|ed|ing))\b.{0,80}?\b(?:at|from) (?:global |training )?"
        r"(?:step|iteration|iter)[ =:]{1,2}(?P<iteration>\d{1,15})\b",
        "Resuming training from step 1000",
        event=_RESUMED,
    ),
)
OTHERS = (
    say(
        "kaldi_objective",
        "Kaldi",
        "the objective of the main output, which is to rise: its negative is the loss",
        "verage objective function for 'output' ",
        rf"verage objective function for 'output' (?:for minibatches (?P<iteration>\d{{1,15}})-\d+ )?"
        rf"is (?P<value>{NUM}|[-+]?(?:nan|inf)) over",
        "Average objective function for 'output' for minibatches 100-199 is -1.28346 over 51200 frames.",
        amend=objective,
    ),
    say(
        "lr_reduced",
        "Keras, PyTorch",
        "the learning rate was reduced",
        "educing learning rate",
        rf"reducing learning rate (?:of group \d+ )?to (?P<lr>{NUM})",
        "Epoch 12: ReduceLROnPlateau reducing learning rate to 0.0001.",
        event=EventKind.LR_CHANGE,
    ),
    say(
        "run_ended",
        "Megatron, slurm and others",
        "the run came to its end",
        ("after training is done", "exiting program at iteration", "CANCELLED AT", "DUE TO TIME LIMIT"),
        r"\[after training is done\]|exiting program at iteration (?P<iteration>\d+)|\*\*\* .{0,80}?"
        r"(?P<status>CANCELLED|DUE TO TIME LIMIT)",
        "slurmstepd: error: *** JOB 7 ON node-3 CANCELLED AT 2026-06-28T16:08:16 ***",
        event=EventKind.RUN_END,
        amend=ended,
    ),
)
