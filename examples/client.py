"""Ask a running service about the images in a folder, batch by batch.

    domainadaptor serve checkpoint.safetensors
    python examples/client.py images/
    python examples/client.py images/ --stream    # learn from batch to batch

Images of one batch influence each other's adapted predictions. They are shuffled, because a folder is often sorted by
class, and a batch of one class misleads adaptation.
"""

import argparse
import os
import random
import time
from pathlib import Path
from typing import Any

import httpx


def ask(client: httpx.Client, method: str, path: str, **more: Any) -> httpx.Response:
    """Send a request; wait and try again while the service is busy."""
    while (answer := client.request(method, path, **more)).status_code in (429, 503):
        time.sleep(float(answer.headers.get("Retry-After", 1)))
    if answer.is_error:
        raise SystemExit(f"{answer.status_code}: {answer.json()['error']}")
    return answer


def main() -> None:
    """Print one line per image: both predictions, and a star where adaptation changed the answer."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--batch", type=int, default=32, help="images per request")
    parser.add_argument("--stream", action="store_true", help="adapt online, each batch after what earlier ones taught")
    given = parser.parse_args()
    files = sorted(path for path in given.folder.iterdir() if path.is_file())
    random.Random(0).shuffle(files)
    token = os.environ.get("DOMAINADAPTOR_SERVE_TOKEN")
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    with httpx.Client(base_url=given.url, headers=headers, timeout=120) as client:
        stream = ask(client, "POST", "/streams").json()["id"] if given.stream else None
        for start in range(0, len(files), given.batch):
            batch = files[start : start + given.batch]
            images = [("images", (path.name, path.read_bytes())) for path in batch]
            answer = ask(client, "POST", "/predict", params={"stream": stream} if stream else {}, files=images).json()
            for path, row in zip(batch, answer["predictions"], strict=True):
                source, adapted = row["source_prediction"], row["adapted_prediction"]
                confidence = row["adapted_confidence"]
                print(f"{path.name}\t{source}\t{adapted}\t{confidence:.2f}{' *' if source != adapted else ''}")
            if answer["note"]:
                print(f"note: {answer['note']}")
        if stream:
            ask(client, "DELETE", f"/streams/{stream}")


if __name__ == "__main__":
    main()
