"""FedLSR: local self-regularisation with two views (Jiang et al., CIKM 2022)."""

from dataclasses import dataclass

from torch import Tensor

from methods.core import training
from methods.core.contract import Batch, Client, Payload, Reply, RoundContext
from methods.core.registry import register
from methods.fedavg import FedAvg
from methods.toolkit.losses import entropy, js_terms, sharpen, softmax_twice_loss, tempered_softmax
from methods.toolkit.schedules import ramp, rounds_from_fraction


@dataclass(frozen=True)
class FedLSRParams:
    gamma: float = 0.4  # gamma, weight of the agreement between the views
    warmup_rounds: float = 0.2  # t_w, as a share of all rounds
    temperature: float = 1 / 3  # T_d
    sharpen_temperature: float = 0.5  # T_s
    lambda_e: float = 0.0  # lambda_e, weight of the entropy; 0: FedLSR, 0.6: FedLSR+
    entropy_form: str = "fixed"  # fixed: mean entropy of both predictions; code: the released code's, see Deviations

    def __post_init__(self) -> None:
        if self.entropy_form not in ("fixed", "code"):
            raise ValueError(
                f"method.entropy_form={self.entropy_form!r} is not legal; legal: fixed, code"
            )
        for name in ("gamma", "lambda_e"):
            if getattr(self, name) < 0:
                raise ValueError(
                    f"method.{name}={getattr(self, name)} is not legal; legal: at least 0"
                )
        for name in ("temperature", "sharpen_temperature"):
            if not getattr(self, name) > 0:
                raise ValueError(
                    f"method.{name}={getattr(self, name)} is not legal; legal: above 0"
                )
        if not 0 <= self.warmup_rounds <= 1:
            raise ValueError(
                f"method.warmup_rounds={self.warmup_rounds} is not legal; legal: 0 to 1, a share of the rounds"
            )


@register(family="robust loss", paper="Jiang et al., CIKM 2022")
class FedLSR(FedAvg):
    """Each client mixes and sharpens the predictions of two views of an image and makes them agree.

    Deviations: (1) as in the released code the sharpened probabilities enter a cross-entropy that applies softmax again. (2) The second view is
    made from the image itself, not from the augmented first view, on pixels in [0, 1] before normalising; the released code augments the
    normalised batch, where colour operations clip. Both use one draw per batch. Its samples count as scored, not as trained.
    (3) The entropy term belongs to FedLSR+, and the authors' notebook has it on (0.6); it is off by default. There it is the entropy of
    softmax(q_1), a softmax of probabilities, and never sees the second view: `entropy_form=code`; the default is the mean entropy of both
    views' softmax. (4) Published rows come from another optimiser and 5 clients per round; data-set files here follow LSG's protocol.
    """

    name = "fedlsr"
    Params = FedLSRParams
    params: FedLSRParams

    def local_update(self, client: Client, payload: Payload, ctx: RoundContext) -> Reply:
        net = client.network(payload.models["model"])
        views, mixing = ctx.generator("second_view", client.id), ctx.rng("mixing", client.id)
        weight = self.params.gamma * ramp(
            ctx.round, rounds_from_fraction(self.params.warmup_rounds, ctx.spec)
        )

        def batch_loss(batch: Batch) -> Tensor:
            second = client.images(batch.index, "second", views)
            return self.two_view_loss(
                net(batch.x), net(second), batch.y, mix=float(mixing.random()), weight=weight
            )

        training.train(client, [net], batch_loss, ctx)
        return client.reply({"model": net.vector})

    def two_view_loss(
        self, first: Tensor, second: Tensor, labels: Tensor, mix: float, weight: float
    ) -> Tensor:
        """The loss of one batch from the logits of both views; `mix` is drawn from Beta(1, 1), `weight` is gamma after warm-up."""
        params = self.params
        mixed = mix * first.softmax(1) + (1 - mix) * second.softmax(1)
        loss = softmax_twice_loss(sharpen(mixed, params.sharpen_temperature), labels)
        if weight:
            loss = (
                loss
                + weight
                * js_terms(
                    tempered_softmax(first, params.temperature),
                    tempered_softmax(second, params.temperature),
                ).mean()
            )
        if params.lambda_e:
            loss = loss + params.lambda_e * self.prediction_entropy(first, second)
        return loss

    def prediction_entropy(self, first: Tensor, second: Tensor) -> Tensor:
        if self.params.entropy_form == "code":
            return entropy(tempered_softmax(first, self.params.temperature).softmax(1)).mean()
        return (entropy(first.softmax(1)) + entropy(second.softmax(1))).mean() / 2
