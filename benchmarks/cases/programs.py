"""Cases of programs that are launches of small ops: reinforcement learning, L-BFGS."""

import torch
from torch import nn

from benchmarks.harness.case import add

ENVIRONMENTS, OBSERVED, ACTIONS, MINIBATCH, ROLLOUT = 4, 4, 2, 128, 512


def perceptron(*sizes):
    layers = []
    for fan_in, fan_out in zip(sizes, sizes[1:], strict=False):
        layers += [nn.Linear(fan_in, fan_out), nn.Tanh()]
    return nn.Sequential(*layers[:-1])


class Agent(nn.Module):
    """Two layers of 64 for the value, and two for the actions."""

    def __init__(self):
        super().__init__()
        self.critic = perceptron(OBSERVED, 64, 64, 1)
        self.actor = perceptron(OBSERVED, 64, 64, ACTIONS)

    def forward(self, observed, action=None):
        choice = torch.distributions.Categorical(logits=self.actor(observed))
        action = choice.sample() if action is None else action
        return action, choice.log_prob(action), choice.entropy(), self.critic(observed)


def agent_on(device):
    torch.manual_seed(0)
    return Agent().to(device)


def ppo_update(**options):
    """A minibatch: clipped losses, gradients, their norm, Adam."""

    def make(device):
        agent = agent_on(device)
        optimiser = torch.optim.Adam(agent.parameters(), lr=1e-5, eps=1e-5, **options)
        generator = torch.Generator().manual_seed(1)
        observed = torch.randn(ROLLOUT, OBSERVED, generator=generator).to(device)
        actions = torch.randint(0, ACTIONS, (ROLLOUT,), generator=generator).float().to(device)
        random = [torch.randn(ROLLOUT, generator=generator).to(device) for _ in range(3)]
        advantages, returns, values = random
        logprobs = torch.full((ROLLOUT,), -0.69, device=device)
        chosen = torch.randperm(ROLLOUT, generator=generator)[:MINIBATCH].numpy()

        def call():
            _, logprob, entropy, value = agent(observed[chosen], actions.long()[chosen])
            logratio = logprob - logprobs[chosen]
            ratio = logratio.exp()
            with torch.no_grad():
                ((ratio - 1) - logratio).mean()
                ((ratio - 1.0).abs() > 0.2).float().mean().item()
            advantage = advantages[chosen]
            advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
            policy = torch.max(-advantage * ratio, -advantage * ratio.clamp(0.8, 1.2)).mean()
            value = value.view(-1)
            unclipped = (value - returns[chosen]) ** 2
            moved = values[chosen] + (value - values[chosen]).clamp(-0.2, 0.2)
            error = torch.max(unclipped, (moved - returns[chosen]) ** 2)
            loss = policy - 0.01 * entropy.mean() + 0.5 * 0.5 * error.mean()
            optimiser.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
            optimiser.step()
            return loss.detach()

        return call

    return make


def ppo_rollout(device):
    """A step of the environments: an action drawn, everything kept, and the host told."""
    agent = agent_on(device)
    kept = [torch.zeros(128, ENVIRONMENTS, device=device) for _ in range(5)]
    observations = torch.zeros(128, ENVIRONMENTS, OBSERVED, device=device)
    seen = torch.randn(ENVIRONMENTS, OBSERVED, generator=torch.Generator().manual_seed(1))
    seen, reward = seen.numpy(), [1.0] * ENVIRONMENTS

    def call():
        observed, done = torch.Tensor(seen).to(device), torch.zeros(ENVIRONMENTS).to(device)
        actions, logprobs, rewards, dones, values = kept
        observations[3] = observed
        dones[3] = done
        with torch.no_grad():
            action, logprob, _, value = agent(observed)
            values[3] = value.flatten()
        actions[3] = action
        logprobs[3] = logprob
        action.cpu().numpy()
        rewards[3] = torch.tensor(reward).to(device).view(-1)
        return values

    return call


def lbfgs(iterations=10, **options):
    """Iterations of L-BFGS on a perceptron whose loss holds its own second derivative."""

    def make(device):
        torch.manual_seed(0)
        model = perceptron(1, 20, 20, 20, 1).to(device)
        x = torch.linspace(-1, 1, 64).view(-1, 1).to(device).requires_grad_()
        initial = [p.detach().clone() for p in model.parameters()]

        def call():
            with torch.no_grad():
                for parameter, value in zip(model.parameters(), initial, strict=True):
                    parameter.copy_(value)
            optimiser = torch.optim.LBFGS(
                model.parameters(),
                max_iter=iterations,
                tolerance_grad=0,
                tolerance_change=0,
                **options,
            )

            def closure():
                optimiser.zero_grad()
                u = model(x)
                (slope,) = torch.autograd.grad(u.sum(), x, create_graph=True)
                (curve,) = torch.autograd.grad(slope.sum(), x, create_graph=True)
                ends = u[0] ** 2 + u[-1] ** 2
                loss = ((curve + torch.pi**2 * torch.sin(torch.pi * x)) ** 2).mean() + ends.sum()
                loss.backward()
                return loss

            return optimiser.step(closure).detach()

        return call

    return make


def lbfgs_direction(device):
    """Iterations over a history of 100, whose closure is next to nothing."""
    start = torch.linspace(-2, 2, 500).to(device)
    scale = torch.linspace(1, 30, 500).to(device)
    parameter = torch.zeros_like(start).requires_grad_()

    def call():
        with torch.no_grad():
            parameter.copy_(start)
        optimiser = torch.optim.LBFGS(
            [parameter], lr=0.01, max_iter=120, tolerance_grad=0, tolerance_change=0
        )

        def closure():
            parameter.grad = (scale * parameter).detach()
            return (parameter.grad * parameter).sum()

        return optimiser.step(closure).detach()

    return call


add("PPO minibatch of 128", "launch", ppo_update())
add("PPO minibatch of 128, fused Adam", "launch", ppo_update(fused=True))
add("PPO step of 4 environments", "launch", ppo_rollout, random=True)
add("10 iterations of L-BFGS, double gradients", "launch", lbfgs(line_search_fn="strong_wolfe"))
add("120 iterations of L-BFGS, history of 100", "launch", lbfgs_direction)
