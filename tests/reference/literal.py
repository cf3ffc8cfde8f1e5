"""DomainAdaptor written a second time: slow, literal, with loops, in the paper's symbols; for GoldenNet."""

import math

import torch
from torch import Tensor

LAYERS = {"bn1": "c1", "bn2": "c2", "bn3": "c3"}


def variance_of(values: Tensor, kind: str) -> Tensor:
    mean = sum(values) / len(values)
    total = sum((value - mean) ** 2 for value in values)
    return total / (len(values) - (1 if kind == "unbiased" else 0))


def statistics(x: Tensor, kind: str) -> tuple[Tensor, Tensor]:
    """mu and sigma^2 over batch and space, in the graph."""
    mus, variances = [], []
    for c in range(x.shape[1]):
        values = x[:, c].reshape(-1)
        mus.append(values.mean())
        variances.append(((values - values.mean()) ** 2).sum() / (len(values) - (1 if kind == "unbiased" else 0)))
    return torch.stack(mus), torch.stack(variances)


def alpha_of(x: Tensor, source: tuple[Tensor, Tensor], rule: str, kind: str) -> float:
    """The weight of the source, channel by channel and image by image."""
    if not isinstance(rule, str):
        return float(rule)
    x = x.detach()
    channels = range(x.shape[1])
    name, _, reverse = rule.partition("-")
    s = [(float(source[0][c]), math.sqrt(float(source[1][c]))) for c in channels]
    t = [(float(x[:, c].mean()), math.sqrt(float(variance_of(x[:, c].reshape(-1), kind)))) for c in channels]
    use_sigma = x[0, 0].numel() > 1

    def distance(a, b):
        means = [a[c][0] - b[c][0] for c in channels]
        sigmas = [a[c][1] - b[c][1] for c in channels] if use_sigma else []
        if name == "paper":
            return math.sqrt(sum(d * d for d in means)) + math.sqrt(sum(d * d for d in sigmas))
        return sum(d * d for d in means) / len(means) + sum(d * d for d in sigmas) / len(channels)

    ratios = []
    for image in x:
        i = [
            (float(image[c].mean()), math.sqrt(float(variance_of(image[c].reshape(-1), kind))) if use_sigma else 0.0)
            for c in channels
        ]
        whole = distance(i, t) + distance(i, s) + (distance(s, t) if name == "code" else 0.0)
        ratios.append(distance(s, t) / whole if whole > 0 else 0.0)
    alpha = min(max(1 - sum(ratios) / len(ratios), 0.0), 1.0)
    return 1 - alpha if reverse else alpha


class LiteralNet:
    """GoldenNet with its norm layers spelled out; gamma and beta are what learns."""

    def __init__(self, network, rule, fold: bool, kind: str) -> None:
        self.network, self.rule, self.fold, self.kind = network, rule, fold, kind
        self.gamma = {name: getattr(network, name).weight.detach().clone() for name in LAYERS}
        self.beta = {name: getattr(network, name).bias.detach().clone() for name in LAYERS}
        self.folded = False
        self.alpha: dict[str, float] = {}

    def norm(self, name: str, x: Tensor, folding: bool) -> Tensor:
        layer = getattr(self.network, name)
        mu_s, var_s, eps = layer.running_mean, layer.running_var, layer.eps
        mu_t, var_t = statistics(x, self.kind)
        if not self.folded:
            a = self.alpha[name] = alpha_of(x, (mu_s, var_s), self.rule, self.kind)
        if folding:
            with torch.no_grad():
                sigma_t = (var_t + eps).sqrt()
                gamma = sigma_t / (a * var_s + (1 - a) * var_t + eps).sqrt() * self.gamma[name]
                self.beta[name] = a * (mu_t - mu_s) / sigma_t * gamma + self.beta[name]
                self.gamma[name] = gamma
            self.gamma[name].requires_grad_()
            self.beta[name].requires_grad_()
        if folding or self.folded:
            mu, var = mu_t, var_t
        else:
            mu, var = a * mu_s + (1 - a) * mu_t, a * var_s + (1 - a) * var_t
        shape = (1, -1, 1, 1)
        normal = (x - mu.view(shape)) / (var.view(shape) + eps).sqrt()
        return normal * self.gamma[name].view(shape) + self.beta[name].view(shape)

    def __call__(self, x: Tensor) -> Tensor:
        folding = self.fold and not self.folded
        if not self.fold and not self.alpha:
            for name in LAYERS:
                self.gamma[name].requires_grad_()
                self.beta[name].requires_grad_()
        h = torch.relu(self.norm("bn1", self.network.c1(x), folding))
        h = torch.relu(self.norm("bn2", self.network.c2(h), folding))
        h = torch.relu(self.norm("bn3", self.network.c3(h), folding) + h)
        self.folded = self.fold
        return self.network.fc(h.mean((2, 3)))

    def leaves(self, learn) -> list[Tensor]:
        return [values[name] for values in (self.gamma, self.beta) for name in learn]


def softmax(z: Tensor) -> Tensor:
    return z.exp() / z.exp().sum()


def temperatures(z: Tensor, rule, scale: float) -> tuple[list, list]:
    """tau and the factor of the loss, image by image."""
    deviations = [float(variance_of(row, "unbiased")) ** 0.5 for row in z.detach()]
    own = [scale * d for d in deviations]
    if rule == "code":
        return own, [sum(t * t for t in own) / len(own)] * len(own)
    if rule == "per_image":
        return own, [t * t for t in own]
    tau = sum(own) / len(own) if rule == "batch_mean" else rule
    return [tau] * len(own), [tau * tau] * len(own)


def loss_of(name: str, z: Tensor, rule, scale: float, target: Tensor | None = None) -> Tensor:
    """The mean over the batch of an image's loss."""
    if name == "entropy":
        return sum(-(softmax(row) * softmax(row).log()).sum() for row in z) / len(z)
    if name == "slr":
        return sum(-(softmax(row) * (1 / (1 - softmax(row) + 1e-8)).log()).sum() for row in z) / len(z)
    taus, factors = temperatures(z, rule, scale)
    total = 0.0
    for i, row in enumerate(z):
        q = softmax(row / taus[i])
        p = {"gem-t": lambda q=q: q, "gem-skd": lambda row=row: softmax(row).detach()}.get(
            name, lambda i=i: target[i]
        )()
        total = total - factors[i] * (p * q.log()).sum()
    return total / len(z)


def adapt(
    network,
    x: Tensor,
    *,
    alpha="code",
    fold: bool = True,
    loss: str | None = None,
    temperature="code",
    scale: float = 2.0,
    variance: str = "unbiased",
    lr: float = 1e-3,
    steps: int = 1,
    views: list[Tensor] | None = None,
    learn=tuple(LAYERS),
) -> tuple[Tensor, Tensor, dict[str, float]]:
    """Logits after and before the steps, which `learn` names the layers of, and alpha by layer.

    `views` holds the views of each step for gem-aug.
    """
    literal = LiteralNet(network, alpha, fold, variance)
    before = z = literal(x)
    for step in range(steps if loss else 0):
        z = before if step == 0 else literal(x)
        target = None
        if loss == "gem-aug":
            with torch.no_grad():
                mean = literal(views[step]).view(-1, *z.shape).mean(0)
                target = [softmax(row) for row in mean]
        gradients = torch.autograd.grad(loss_of(loss, z, temperature, scale, target), literal.leaves(learn))
        with torch.no_grad():
            for leaf, gradient in zip(literal.leaves(learn), gradients, strict=True):
                leaf -= lr * gradient
    after = literal(x) if loss else before
    return after.detach(), before.detach(), literal.alpha
