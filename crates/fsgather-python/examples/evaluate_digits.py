"""An ordinary evaluation with torch.distributed, which knows nothing of fsgather.

Every rank classifies its share of handwritten digits; rank 0 gets everybody's predictions as objects and prints the
accuracy, which must be what one process finds alone:

    torchrun --nproc-per-node 4 evaluate_digits.py
    FSGATHER_PATCH=torch torchrun --nproc-per-node 4 evaluate_digits.py     # the same, through fsgather

The data set lies in ``crates/fsgather-cli/data``; its source and licence are told there.
"""

import os
import pathlib
from typing import Any

import torch
import torch.distributed as dist

DATA = pathlib.Path(__file__).resolve().parents[2] / "fsgather-cli" / "data" / "digits.csv"


def digits() -> tuple[torch.Tensor, torch.Tensor]:
    """Images as ``[1797, 64]`` numbers from 0 to 1, and what they show."""
    rows = [[int(field) for field in line.split(",")] for line in DATA.read_text().split()]
    table = torch.tensor(rows)
    return table[:, :64].float() / 16, table[:, 64]


def trained(images: torch.Tensor, labels: torch.Tensor) -> torch.nn.Module:
    """A small classifier, the same on every rank because the seed is."""
    torch.manual_seed(7)
    model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(60):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
    return model.eval()


@torch.no_grad()
def classify(model: torch.nn.Module, images: torch.Tensor, numbers: range) -> list[dict[str, float]]:
    """A prediction for each image of these numbers."""
    predictions = []
    for number in numbers:
        scores = model(images[number]).softmax(0)
        predictions.append({"image_id": number, "label": int(scores.argmax()), "score": float(scores.max())})
    return predictions


def accuracy(predictions: list[dict[str, float]], labels: torch.Tensor, numbers: range) -> float:
    """The share of these images that were recognised, if each was looked at once."""
    found = {prediction["image_id"]: prediction["label"] for prediction in predictions}
    assert len(predictions) == len(numbers) and found.keys() == set(numbers)
    return sum(found[number] == int(labels[number]) for number in numbers) / len(numbers)


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    images, labels = digits()
    held_out = range(1000, len(labels))  # not trained on
    model = trained(images[: held_out.start], labels[: held_out.start])

    mine = classify(model, images, held_out[rank::ranks])
    everybodys: Any = [None] * ranks if rank == 0 else None
    dist.gather_object(mine, everybodys, dst=0)

    if everybodys is not None:
        together = accuracy([prediction for part in everybodys for prediction in part], labels, held_out)
        alone = accuracy(classify(model, images, held_out), labels, held_out)
        print(f"accuracy of {ranks} ranks: {together:.4f}; of one process: {alone:.4f}")
        assert together == alone
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
