"""What a student learns from the logits of a teacher beside the labels: Hinton, Vinyals and Dean (2015), "Distilling
the Knowledge in a Neural Network", section 2.

B documents . C classes
"""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional as F

Divergence = Callable[[Tensor, Tensor, float], Tensor]


@dataclass(frozen=True, slots=True)
class Teaching:
    """How much of the loss is the teacher's, from 0 to 1, and by what both logits are divided before they are compared:
    the higher, the more counts how the teacher ranks the classes it does not choose."""

    weight: float
    temperature: float = 1.0

    def joined(self, losses: Tensor, logits_BC: Tensor, teacher_BC: Tensor | None, divergence: Divergence) -> Tensor:
        """`losses` by the labels, of rows `(B,)` or of their labels `(B, C)`, joined with the divergence from the
        teacher, if there is one.

        The divergence is multiplied by the square of the temperature, as its gradient shrinks by that.
        """
        if teacher_BC is None:
            return losses
        apart = self.temperature**2 * divergence(logits_BC, teacher_BC, self.temperature)
        return (1 - self.weight) * losses + self.weight * apart


UNTAUGHT = Teaching(0.0)


def of_classes(logits_BC: Tensor, teacher_BC: Tensor, temperature: float) -> Tensor:
    """KL(teacher || student) of the two softmaxes, in nats: `(B,)`."""
    ours_BC, theirs_BC = ((one / temperature).log_softmax(-1) for one in (logits_BC, teacher_BC))
    return F.kl_div(ours_BC, theirs_BC, reduction="none", log_target=True).sum(-1)


def of_labels(logits_BC: Tensor, teacher_BC: Tensor, temperature: float) -> Tensor:
    """The same of each label, which has a probability of its own: `(B, C)`."""
    ours_BC, theirs_BC = logits_BC / temperature, teacher_BC / temperature
    given_BC = theirs_BC.sigmoid()
    having_BC = given_BC * (F.logsigmoid(theirs_BC) - F.logsigmoid(ours_BC))
    lacking_BC = (1 - given_BC) * (F.logsigmoid(-theirs_BC) - F.logsigmoid(-ours_BC))
    return having_BC + lacking_BC
