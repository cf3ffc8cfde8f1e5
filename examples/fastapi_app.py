"""Predict over HTTP with FastAPI alone; `domainadaptor serve` has streams, limits, metrics and worker processes.

uvicorn --app-dir examples fastapi_app:app     # then send images to http://127.0.0.1:8000/predict
python examples/fastapi_app.py                 # or let the program send some to itself
"""

import io

import torch
from fastapi import FastAPI, HTTPException, UploadFile
from PIL import Image
from torchvision import transforms
from torchvision.models import resnet18

import domainadaptor as da

CLASSES = ["cat", "dog", "horse"]
TRANSFORM = transforms.Compose(
    [
        transforms.Resize((64, 64)),
        transforms.ToTensor(),
        transforms.Normalize(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225)),
    ]
)
app = FastAPI()
# An adaptor may be shared: callers take turns. It is episodic, so that requests do not influence each other.
adaptor = da.adapt(resnet18(num_classes=len(CLASSES)).eval(), min_batch=4)  # load your weights here


@app.post("/predict")
def predict(images: list[UploadFile]) -> dict[str, object]:
    """Predict the images of one request, which are one batch: of one camera, scanner or style."""
    try:
        pixels = torch.stack([TRANSFORM(Image.open(image.file).convert("RGB")) for image in images])
        result = adaptor.adapt(pixels)
    except (OSError, da.BadBatch) as error:
        raise HTTPException(400, str(error)) from error
    return {"answers": [CLASSES[at] for at in result.logits.argmax(1)], "note": result.note}


def main() -> None:
    """Send eight random pictures to the app."""
    from fastapi.testclient import TestClient

    files = []
    for at in range(8):
        held = io.BytesIO()
        Image.effect_noise((80, 80), 60 + at).convert("RGB").save(held, "png")
        files.append(("images", (f"{at}.png", held.getvalue())))
    client = TestClient(app)
    print(client.post("/predict", files=files).json())
    print(client.post("/predict", files=[("images", ("text.png", b"no picture"))]).status_code)


if __name__ == "__main__":
    main()
