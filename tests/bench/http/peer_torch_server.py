#!/usr/bin/env python3
"""The service one would write instead in an afternoon, the other side of bench-http: aiohttp and
PyTorch, the XNOR-Net formula with scaling factors, on the GPU where there is one.

  peer_torch_server.py     prints the port it took on 127.0.0.1
POST /conv?side=N: N*N little-endian fp32 values; the answer has as many. Needs aiohttp, numpy, torch;
uses uvloop if it is there.
"""
import asyncio
import socket

import numpy
import torch
from aiohttp import web
from torch.nn import functional

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
torch.backends.cudnn.benchmark = True
signs = torch.where(torch.rand(1, 1, 3, 3, device=DEVICE) >= 0.5, 1.0, -1.0)
alpha = 0.5


@torch.no_grad()
def convolve(body, side):
    image = torch.frombuffer(body, dtype=torch.float32).reshape(1, 1, side, side).to(DEVICE)
    scale = functional.avg_pool2d(image.abs().mean(1, keepdim=True), 3, 1, 1)
    dot = functional.conv2d(torch.where(image >= 0, 1.0, -1.0), signs, padding=1)
    return (dot * scale * alpha).cpu().numpy().astype(numpy.float32).tobytes()


async def conv(request):
    side = int(request.query["side"])
    body = bytearray(await request.read())
    return web.Response(body=convolve(body, side), content_type="application/octet-stream")


def main():
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    app = web.Application(client_max_size=1 << 28)
    app.router.add_post("/conv", conv)
    print(listener.getsockname()[1], flush=True)
    web.run_app(app, sock=listener, print=None, access_log=None, loop=asyncio.new_event_loop())


try:
    import uvloop

    asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
except ImportError:
    pass
main()
