"""Co-teaching (Han et al., NeurIPS 2018) as local training, with two averaged models."""

from collections.abc import Mapping

import torch
from torch import Tensor

from methods.core.contract import ClientPool, Diagnosis
from methods.core.params import Fraction, ProperFraction, parameters
from methods.core.registry import register
from methods.core.task import Batch, LocalTask, Models
from methods.fedavg import FedAvg, client_arrays
from methods.toolkit.losses import cross_entropy
from methods.toolkit.schedules import forget_rate, num_kept, rounds_from_fraction


@parameters
class CoteachingParams:
    forget_rate: ProperFraction = 0.2  # tau, final fraction dropped per batch
    ramp_fraction: Fraction = 0.1  # T_k, ramp of the rate from 0 to tau, of all rounds


@register(family="sample selection", paper="Han et al., NeurIPS 2018")
class Coteaching(FedAvg):
    """Two models, each trained on the samples with the smallest loss under the other model.

    Deviations:

    1. The paper trains centrally. Here two global models, initialized differently, are averaged.
    2. The rate ramps up over rounds instead of epochs, linearly (the paper's c = 1).
    3. The released code divides the mean loss by the number of selected samples. Here it does not.
    4. The released code drops a short last batch. Here it is kept; at least one sample is selected.
    5. The paper sets tau to the true noise rate. Cells that do are marked as oracle.
    6. The first model is evaluated. The second only selects samples for it.
    """

    name = "coteaching"
    params: CoteachingParams
    model_names = ("a", "b")
    client_state_doc = "mask of the samples that the first model selected last"

    def eval_models(self) -> Mapping[str, Tensor]:
        return {"a": self.state.models["a"]}

    def diagnose(self, pool: ClientPool) -> Diagnosis:
        """Noisy: samples that the first model did not select in a client's last epoch."""
        selected = client_arrays(pool, "picked")
        return Diagnosis(noisy_samples={k: ~mask for k, mask in selected.items()})

    def start_local_update(self, models: Models, task: LocalTask) -> None:
        length = rounds_from_fraction(self.params.ramp_fraction, task.ctx.spec)
        task.local.rate = forget_rate(task.ctx.round, length, self.params.forget_rate)
        task.local.selected = []  # positions, in the last epoch

    def joint_loss(self, models: Models, batch: Batch, task: LocalTask) -> Tensor:
        logits = [model(batch.x) for model in models.values()]
        losses_a, losses_b = (cross_entropy(z, batch.y, reduction="none") for z in logits)
        selected_a = smallest_loss_indices(losses_a, task.local.rate)
        selected_b = smallest_loss_indices(losses_b, task.local.rate)
        if batch.epoch == task.ctx.train.local_epochs - 1:
            task.local.selected.append(batch.index.index_select(0, selected_a))
        # Each term has gradients for one model only, because the selection has none.
        losses = losses_a.index_select(0, selected_b), losses_b.index_select(0, selected_a)
        return losses[0].mean() + losses[1].mean()

    def finish_local_update(self, models: Models, task: LocalTask) -> None:
        picked = torch.zeros_like(task.client.given_labels, dtype=torch.bool)
        task.client.state["picked"] = picked.index_fill_(0, torch.cat(task.local.selected), True)


def smallest_loss_indices(losses: Tensor, rate: float) -> Tensor:
    """Positions of the smallest losses, without a fraction `rate`. Of equal losses, the first."""
    return losses.detach().argsort(stable=True)[: num_kept(len(losses), rate)]
