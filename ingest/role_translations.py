"""Names in other languages than English, and abbreviations that only one tool writes, in English words."""

from __future__ import annotations

TRANSLATIONS: dict[str, str] = {
    "r": "reward",  # of an episode, as monitors of environments write it
    **dict.fromkeys(
        ("损失", "损失值", "训练损失", "总损失", "損失", "訓練損失", "손실", "훈련_손실"), "loss"
    ),
    **dict.fromkeys(("verlust", "perte", "pérdida", "perdida", "perda", "потери", "потеря"), "loss"),
    **dict.fromkeys(("验证损失", "測試損失", "测试损失", "検証損失", "검증_손실"), "val_loss"),
    **dict.fromkeys(("学习率", "學習率", "学習率", "학습률", "lernrate", "l.r", "скорость_обучения"), "lr"),
    **dict.fromkeys(("轮次", "轮数", "轮", "第几轮", "周期", "エポック", "에폭", "에포크"), "epoch"),
    **dict.fromkeys(("epoche", "époque", "epoca", "época", "эпоха", "ep"), "epoch"),
    **dict.fromkeys(("训练次数", "步数", "迭代", "迭代次数", "步骤", "訓練次數", "ステップ", "스텝"), "step"),
    **dict.fromkeys(("schritt", "paso", "шаг", "iteración", "itération", "итерация"), "step"),
    **dict.fromkeys(("批次", "バッチ", "배치"), "batch"),
    **dict.fromkeys(("准确率", "正确率", "精度", "準確率", "정확도", "genauigkeit", "точность"), "accuracy"),
    **dict.fromkeys(("梯度范数", "梯度裁剪", "勾配ノルム"), "grad_norm"),
    **dict.fromkeys(("耗时", "时间", "時間", "用时"), "elapsed time"),
    "up": "updates",
    "sen": "samples",
}
"""What stands for a name, as `spelling` writes it, where its own words say nothing."""
