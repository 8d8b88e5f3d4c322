"""The words from which names of metrics are made; `role_words` puts their meaning together."""

from __future__ import annotations

import re


def _set_of(text: str) -> frozenset[str]:
    return frozenset(text.split())


EVAL = _set_of("val vali valid validation validate eval evaluation dev heldout holdout")
TEST = _set_of("test tst testing")
FOREIGN_EVAL = re.compile("测试|測試|验证|驗證|校验|検証|評価|テスト|검증|평가")
EITHER = "|".join(sorted(EVAL | TEST))
EVALUATION = re.compile(
    rf"(?P<first>{EITHER})[_/. :]+(?P<behind>.+)|(?P<before>.+?)[_/. :]+(?P<last>{EITHER})"
)
TRAIN = _set_of("train training trn tr trainer learn learner")
HOW_OFTEN = _set_of(
    "step steps iter iteration batch minibatch mini inner cur curr current last raw log logs metric metrics"
    " stat stats scalar scalars item perf per losses optim now actual"
    " sample example record info minibatches"
)
AVERAGED = _set_of(
    "avg avr aver average mean running smooth smoothed smoothing ema moving median epoch interval win"
)
WHOLE = _set_of("total tot overall all sum full combined final global reduced main model accumulated")
ALGORITHMS = _set_of("ppo grpo rloo reinforce trpo a2c a3c impala sac dqn td3 ddpg kto orpo")
"""What is trained by, in front of a loss that is called the whole: ``ppo/loss/total``."""
MAIN = _set_of(
    "lm nll ce xent crossentropy mlm clm ar causal language modeling masked pretrain pretraining sft token"
    " tokens gpt ntp next base task objective dpo ctc mse"
)
WEAK_LOSS = _set_of(
    "nll xent crossentropy mlm clm logloss mlogloss cost objective objf obj mse rmse mae bce bpc bpb"
    " deviance ce"
)
WEAKER_LOSS = _set_of("ppl perplexity ppx err errs error errors merror")
"""Judged as the loss where not even a weak one is there."""
KIND_OF_LOSS = _set_of("binary multi sparse categorical softmax sigmoid language token log neg l 1 2")
"""Words that change nothing about what a weak loss is."""
AUXILIARY = _set_of(
    "aux auxiliary balancing balance z router kl kld reg regularization regularizer commitment commit"
    " consistency entropy ent penalty gp alpha temperature contrastive weight decay"
)
LEADS = ("policy", "actor", "act", "pi", "pg", "surrogate", "g", "gen", "generator")
PLAYERS = _set_of("value vf critic cri q qf v discriminator disc dis d adversarial adv real fake").union(
    LEADS
)
"""Words of the losses of players, of which a leading one is judged where there is no whole."""
SAME = {
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
    "likelihood": ("lik",),
}
NORM_EXTRA = _set_of(
    "global total l 2 0 before pre preclip unclipped clip clipping optim parameter params sum"
)
RATE_EXTRA = _set_of(
    "adam adamw sgd lion adafactor rmsprop lamb w pg group param parameter x optim optimizer"
)
MILLISECONDS = _set_of("ms msec millis milliseconds")
SECONDS = _set_of("time s sec secs seconds duration") | MILLISECONDS
TIME_WORDS = _set_of("per step iter iteration elapsed train avg") | SECONDS
SKIP_WORDS = _set_of("number num n of skipped step steps iter iterations iteration updates update")
CONTEXT = re.compile(
    r"(^|[^a-z])(time|times|sec|secs|seconds|s|ms|epoch|epochs|tokens|samples|step|steps|iter|iters|num|count|lr|lrs"
    r"|learning|throughput|memory|mem|elapsed|eta)\d*([^a-z]|$)"
)
POSSESSIVE = re.compile(r"'s\b")
"""``training's auc``."""
PLAYER = re.compile(r"([DG]_|(Err|err|loss)_[DG]$)\w*")
"""``G_GAN``, ``D_real``, ``Err_G``: the names of the losses of two players, where no word says loss."""
TERM = re.compile(r"l_[a-z]\w*")
"""``l_pix``, ``l_g_percep``: terms of a loss."""
WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
SCOPED_HERE = frozenset(
    {"loss", "global_loss", "lr", "grad_norm", "loss_scale", "tokens", "skipped", "step_time_s"}
)
"""Built-in metrics that have no scopes: what stands behind a slash is another tool's way of naming."""
