#!/usr/bin/env python3
"""The converter's parts: bits, padding, numbers, orders of dense layers, files, ONNX node by node.

make test-networks
"""

import io
import json
import subprocess
import sys
import unittest
from contextlib import redirect_stderr
from pathlib import Path

import numpy as np
import save
import torch
import torch.nn.functional as F
from definitions import BiRealNet, same
from graphs import ROOT, Case, Graphs
from xnord_convert import ConvertError, bits, checkpoint, cli, folder, numbers
from xnord_convert.families import FAMILIES
from xnord_convert.network import Network
from xnord_convert.onnx_file import convert
from xnord_convert.preprocess import Preprocessing
from xnord_convert.run_folder import k_map, pads, read_tensors, sign


class Bits(Case):
    def test_formula_of_the_format(self) -> None:
        for channels in (1, 7, 8, 9, 64, 65):
            weight = self.random.standard_normal((5, channels, 3, 2))
            want = np.packbits(weight.transpose(0, 2, 3, 1) >= 0, axis=-1, bitorder="little")
            np.testing.assert_array_equal(bits.pack(weight), want)
            self.assertEqual(bits.pack(weight).shape, (5, 3, 2, -(-channels // 8)))

    def test_first_channel_is_the_lowest_bit_and_one_is_plus(self) -> None:
        weight = -np.ones((1, 10, 1, 1))
        weight[0, 0], weight[0, 9] = 0, 1  # 0 is +1
        self.assertEqual(bits.pack(weight).ravel().tolist(), [1, 2])

    def test_back_and_forth(self) -> None:
        for shape in ((3, 13, 2, 5), (4, 21)):
            weight = self.random.standard_normal(shape)
            np.testing.assert_array_equal(
                bits.unpack(bits.pack(weight), shape[1]), np.where(weight >= 0, 1, -1)
            )


class Numbers(Case):
    def test_norm_is_folded_in_double_and_rounded_once(self) -> None:
        mean, gamma, beta = self.random.standard_normal((3, 100)).astype("f4")
        variance = self.random.uniform(1e-6, 9, 100).astype("f4")
        scale, bias = numbers.Norm(mean, variance, gamma, beta).fold(1e-5)
        net = Network("x", 100, 1, 1)
        net.norm("bn", "x", numbers.Norm(mean, variance, gamma, beta), 1e-5)
        exact = gamma.astype("f8") / np.sqrt(variance.astype("f8") + 1e-5)
        np.testing.assert_array_equal(net.tensors["bn.scale"], exact.astype("f4"))
        np.testing.assert_array_equal(
            net.tensors["bn.bias"], (beta - mean.astype("f8") * exact).astype("f4")
        )
        self.assertEqual(scale.dtype, np.float64)
        self.assertEqual(bias.dtype, np.float64)

    def test_norm_without_gamma_and_beta(self) -> None:
        scale, bias = numbers.Norm(np.array([3.0]), np.array([4.0])).fold(0)
        self.assertEqual((scale[0], bias[0]), (0.5, -1.5))

    def test_mean_magnitude_and_centring(self) -> None:
        weight = self.random.standard_normal((4, 3, 2, 2)) * 2
        self.assert_close(numbers.mean_magnitude(weight), np.abs(weight).mean((1, 2, 3)), 1e-12)
        centred = numbers.centred(weight)
        want = np.clip(weight - weight.mean(1, keepdims=True), -1, 1)
        np.testing.assert_array_equal(centred, want)

    def test_flat_columns(self) -> None:
        """A dense layer of Keras behind its flatten is the same behind ours."""
        image = self.random.standard_normal((2, 3, 4, 5))  # C 3, H 4, W 5
        weight = self.random.standard_normal((7, 60))
        want = image.transpose(0, 2, 3, 1).reshape(2, -1) @ weight.T
        self.assert_close(image.reshape(2, -1) @ numbers.flat_columns(weight, 3, 4, 5).T, want)


class Padding(Case):
    def test_same_is_tensorflows(self) -> None:
        """By the definition: as few as give ceil(size / stride) windows, the smaller half first."""
        for size in range(1, 12):
            for kernel in range(1, 6):
                for stride in range(1, 4):
                    top, left, bottom, right = pads(
                        "same", (size, size), (kernel, kernel), (stride, stride)
                    )
                    self.assertEqual((top, bottom), (left, right))
                    self.assertIn(bottom - top, (0, 1))
                    out = (size + top + bottom - kernel) // stride + 1
                    self.assertEqual(out, -(-size // stride))
                    if top + bottom:
                        self.assertEqual((size + top + bottom - kernel) % stride, 0)

    def test_same_at_stride_2_is_asymmetric(self) -> None:
        self.assertEqual(pads("same", (224, 224), (3, 3), (2, 2)), (0, 0, 1, 1))
        self.assertEqual(pads("same", (224, 225), (7, 7), (2, 2)), (2, 3, 3, 3))

    def test_layers_pad_alike(self) -> None:
        image = self.random.standard_normal((2, 4, 9, 8)).astype("f4")
        weight = self.random.standard_normal((6, 4, 3, 3)).astype("f4")
        net = Network("x", 4, 9, 8)
        net.conv("c", "x", weight, "xnor", stride=2, padding="same", pad_value=1)
        x = same(sign(torch.from_numpy(image)), 3, 2, 1)
        want = F.conv2d(x, sign(torch.from_numpy(weight)), stride=2)
        np.testing.assert_array_equal(self.run_network(net, image), want)

    def test_average_pools_count_padding_or_not(self) -> None:
        image = self.random.standard_normal((1, 2, 5, 5))
        for count in (False, True):
            net = Network("x", 2, 5, 5)
            net.avg_pool(
                "p", "x", 3, stride=2, padding=1, **({"count_padding": True} if count else {})
            )
            want = F.avg_pool2d(torch.from_numpy(image), 3, 2, 1, count_include_pad=count)
            self.assert_close(self.run_network(net, image), want, 1e-12)

    def test_k_map(self) -> None:
        """K as `/conv` has it, pixel by pixel."""
        image = self.random.standard_normal((1, 4, 5, 6))
        weight = self.random.standard_normal((6, 2, 3, 3))
        net = Network("x", 4, 5, 6)
        net.conv("c", "x", weight, "xnor", padding=1, groups=2, k_map=True)
        got = self.run_network(net, image)
        padded = np.pad(np.abs(image[0]), ((0, 0), (1, 1), (1, 1)))
        dot = F.conv2d(
            sign(torch.from_numpy(image)), sign(torch.from_numpy(weight)), padding=1, groups=2
        ).numpy()
        for o in range(6):
            group = slice(0, 2) if o < 3 else slice(2, 4)
            for y in range(5):
                for x in range(6):
                    k = padded[group, y : y + 3, x : x + 3].mean(0).sum() / 9
                    self.assert_close(got[0, o, y, x], dot[0, o, y, x] * k)
        self.assertEqual(
            k_map(
                torch.ones(1, 4, 5, 6), torch.ones(6, 2, 3, 3), (1, 1, 1, 1), (1, 1), (1, 1), 2
            ).shape,
            (1, 6, 5, 6),
        )


class Files(Case):
    def test_keras_weights(self) -> None:
        kernel = self.random.standard_normal((3, 2, 4, 5))
        weight = checkpoint.keras_weight(kernel)
        self.assertEqual(weight[4, 3, 2, 1], kernel[2, 1, 3, 4])
        self.assertEqual(checkpoint.keras_weight(kernel, depthwise=True).shape, (20, 1, 3, 2))
        self.assertEqual(
            checkpoint.keras_weight(kernel, depthwise=True)[3 * 5 + 4, 0, 2, 1], kernel[2, 1, 3, 4]
        )
        dense = self.random.standard_normal((4, 7))
        np.testing.assert_array_equal(checkpoint.keras_weight(dense), dense.T)

    def test_names_lose_their_wrappers(self) -> None:
        tensors = {
            "module.features.module.0.weight": torch.ones(2, 3),
            "a.num_batches_tracked": torch.tensor(3),
            "_model.b": torch.ones(1, dtype=torch.bfloat16),
        }
        torch.save({"epoch": 1, "state_dict": tensors}, self.path / "c.pth.tar")
        found = checkpoint.read(self.path / "c.pth.tar")
        self.assertEqual(list(found.tensors), ["features.0.weight", "b"])

    def test_code_in_a_checkpoint_does_not_run(self) -> None:
        torch.save(BiRealNet((1, 1, 1, 1), 8, 3), self.path / "whole.pth")
        with self.assertRaisesRegex(ConvertError, "state_dict"):
            checkpoint.read(self.path / "whole.pth")

    def test_mxnet_file_cut_short(self) -> None:
        save.mxnet_file(torch.nn.Sequential(torch.nn.Conv2d(2, 3, 3)), self.path / "a.params")
        whole = (self.path / "a.params").read_bytes()
        self.assertEqual(
            checkpoint.read(self.path / "a.params").tensors["layer1.weight"].shape, (3, 2, 3, 3)
        )
        for length in range(len(whole)):
            (self.path / "a.params").write_bytes(whole[:length])
            with self.assertRaises(ConvertError):
                checkpoint.read(self.path / "a.params")

    def test_safetensors_that_the_library_reads(self) -> None:
        from safetensors.numpy import load_file

        tensors = {"a.weight": np.arange(6, dtype="u1").reshape(2, 3), "b.scale": np.ones(3, "f4")}
        folder.write_tensors(self.path / "t.safetensors", tensors)
        for found in (
            load_file(self.path / "t.safetensors"),
            read_tensors(self.path / "t.safetensors"),
        ):
            self.assertEqual(list(found), list(tensors))
            for name, values in tensors.items():
                np.testing.assert_array_equal(found[name], values)

    def test_labels(self) -> None:
        (self.path / "l").write_bytes("\ufeffzwei W\u00f6rter\r\n\nlast".encode())
        self.assertEqual(folder.read_labels(self.path / "l"), ["zwei W\u00f6rter", "", "last"])


class CommandLine(Case):
    def bireal(self) -> Path:
        torch.manual_seed(1)
        made = BiRealNet((4, 4, 4, 4), 8, 5)
        with torch.no_grad():
            for name, values in made.named_parameters():
                if name.endswith("weights"):
                    values[:] = torch.randn_like(values)
            made.bn1.bias[:] = 0.1  # where the sign of 0 does not matter
        made.layer1[0].binary_conv.weights.data[:3] = 0
        made.layer3[1].binary_conv.weights.data[7] = -0.0
        path = self.path / "c.pth"
        save.torch_file(made, path, wrapped=True)
        return path

    def convert(self, *arguments: str) -> int:
        with redirect_stderr(io.StringIO()):
            return cli.main(["-o", str(self.path / "m"), "--size", "32", "-q", *arguments])

    def test_zero_weights_are_counted_and_plus_one(self) -> None:
        options = cli.parse(["--family", "birealnet18", str(self.bireal()), "--size", "32"])
        net = cli.convert(options)
        self.assertEqual(net.zeros, {"layer1.0.binary_conv": 3, "layer3.1.binary_conv": 1})
        self.assertIn("4 binary weights are exactly 0", cli.summary(net))
        weight = bits.unpack(net.tensors["layer1.0.binary_conv.weight"], 8)
        self.assertEqual(weight.reshape(-1)[:3].tolist(), [1, 1, 1])

    def test_configuration(self) -> None:
        (self.path / "labels").write_text("a\nb\n")
        options = "--name bi-real --input-datatype UINT8 --layout NHWC --max-batch-size 64"
        arguments = [*options.split(), "--precision", "fp16", "--labels", str(self.path / "labels")]
        status = self.convert("--family", "birealnet18", str(self.bireal()), *arguments)
        self.assertEqual(status, 0)
        config = json.loads((self.path / "m/config.json").read_text())
        self.assertEqual(config["name"], "bi-real")
        self.assertEqual(config["max_batch_size"], 64)
        self.assertEqual(config["precision"], "fp16")
        self.assertEqual(
            config["input"],
            {"name": "input", "datatype": "UINT8", "shape": [32, 32, 3], "layout": "NHWC"},
        )
        self.assertEqual(
            config["output"], {"name": "logits", "layer": "fc", "labels": "labels.txt"}
        )
        self.assertEqual((self.path / "m/labels.txt").read_text(), "a\nb\n")
        tensors = read_tensors(self.path / "m/model.safetensors")
        self.assert_close(tensors["normalise.scale"], 1 / (255 * np.array([0.229, 0.224, 0.225])))

    def test_pictures(self) -> None:
        def picture(family: str, size: tuple[int, int], raw: bool) -> dict[str, object]:
            return FAMILIES[family].picture(size, raw)

        torchvision = {"resize": 256, "crop": 224, "filter": "bilinear"}
        self.assertEqual(picture("birealnet18", (224, 224), False), torchvision)
        self.assertEqual(picture("quicknet", (224, 224), False), torchvision | {"filter": "bicubic"})
        self.assertEqual(picture("alexnet", (227, 227), True), torchvision | {"crop": 227})
        self.assertEqual(picture("birealnet18", (32, 32), False), {})
        self.assertEqual(picture("quicknet", (96, 96), True), {"mean": [0.5] * 3, "std": [0.5] * 3})
        self.assertEqual(picture("cnv", (32, 32), True), {})
        self.convert("--family", "birealnet18", str(self.bireal()))
        config = json.loads((self.path / "m/config.json").read_text())
        mean = {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}
        self.assertEqual(config["input"]["picture"], mean)

    def test_what_is_refused(self) -> None:
        file = str(self.bireal())
        for arguments in (
            ["--family", "birealnet34", file],
            ["--family", "reactnet18", file],
            ["--family", "quicknet", file],
            ["--family", "vgg-cifar10", file],
            ["--family", "birealnet18", str(self.path / "none.pth")],
            [file],
            ["--family", "birealnet18", file, "--name", "a b"],
            ["--family", "birealnet18", file, "--max-batch-size", "0"],
        ):
            with self.subTest(arguments):
                self.assertEqual(self.convert(*arguments), 1)
                self.assertFalse((self.path / "m/config.json").exists())

    def test_tensors_that_nobody_reads(self) -> None:
        content = torch.load(self.bireal(), weights_only=True)
        content["state_dict"]["extra.weight"] = torch.ones(3)
        torch.save(content, self.path / "c.pth")
        arguments = ["--family", "birealnet18", str(self.path / "c.pth")]
        self.assertEqual(self.convert(*arguments), 1)
        self.assertEqual(self.convert(*arguments, "--allow-unread"), 0)

    def test_the_program(self) -> None:
        program = ROOT / "deploy/convert/xnord-convert"
        found = subprocess.run(
            [sys.executable, program, "--list-families"], capture_output=True, text=True, check=True
        )
        self.assertIn("birealnet18", found.stdout)


class Onnx(Graphs):
    def test_convolutions(self) -> None:
        for attributes in (
            "",
            "<strides=[2, 1], pads=[1, 0, 2, 1]>",
            '<auto_pad="SAME_UPPER", strides=[2, 2]>',
            "<dilations=[2, 1]>",
        ):
            constants = {"w": self.weight(6, 4, 3, 3), "b": self.weight(6)}
            layers = self.both(f"y = Conv{attributes}(x, w, b)", **constants)
            self.assertEqual(self.ops(layers), ["conv float"])
        self.both("y = Conv<group=2>(x, w)", w=self.weight(6, 2, 3, 3))

    def test_binary_convolutions(self) -> None:
        scale = np.abs(self.weight(8, 1, 1, 1)) + 0.1
        for op, yes in (("GreaterOrEqual", 1), ("Greater", 1), ("Less", -1), ("LessOrEqual", -1)):
            with self.subTest(op):
                layers = self.both(
                    f"c = {op}(x, zero); s = Where(c, yes, no); y = Conv<pads=[1, 1, 1, 1]>(s, w)",
                    zero=np.float32(0),
                    yes=np.float32(yes),
                    no=np.float32(-yes),
                    w=self.signs(8, 4, 3, 3) * scale,
                )
                self.assertEqual(self.ops(layers)[-1], "conv xnor")

    def test_ties_are_exact(self) -> None:
        """Halves of integers compared with 0.5, by each comparison, with the constant on each
        side."""
        images = np.arange(-4, 4, dtype="f4").reshape(1, 8, 1, 1).repeat(2, 0) / 2
        for op in ("GreaterOrEqual", "Greater", "Less", "LessOrEqual"):
            for inputs in ("x, c", "c, x"):
                for more in ("t = Identity(c0)", "t = Not(c0)"):
                    text = f"c0 = {op}({inputs}); {more}; y = Cast<to=1>(t)"
                    with self.subTest(text):
                        self.both(text, (8, 1, 1), images, c=np.float32(0.5))

    def test_cast_of_a_comparison_is_a_sign_again(self) -> None:
        layers = self.both(
            "c = GreaterOrEqual(x, zero); f = Cast<to=1>(c); m = Mul(f, two); s = Sub(m, one);"
            "y = Conv(s, w)",
            zero=np.float32(0),
            two=np.float32(2),
            one=np.float32(1),
            w=self.signs(3, 4, 3, 3),
        )
        self.assertEqual(self.ops(layers), ["sign", "conv xnor"])

    def test_larqs_sign(self) -> None:
        layers = self.both("a = Sign(x); b = Add(a, tenth); y = Sign(b)", tenth=np.float32(0.1))
        self.assertEqual(self.ops(layers), ["sign"])

    def test_straight_through_estimators_go(self) -> None:
        text = "s = Sign(x); t = Tanh(x); i = Identity(t); d = Sub(s, i); y = Add(d, t)"
        images = self.random.standard_normal((2, 4, 6, 5)).astype("f4")
        self.assertEqual(self.ops(self.both(text, images=images)), ["sign"])

    def test_pads_in_front(self) -> None:
        pads = np.array([0, 0, 1, 0, 0, 0, 2, 1], np.int64)
        for value in (1.0, -1.0, 0.0):
            layers = self.both(
                "s = Sign(x); p = Pad(s, pads, value); y = Conv(p, w)",
                images=self.random.standard_normal((2, 4, 6, 5)).astype("f4"),
                pads=pads,
                value=np.float32(value),
                w=self.signs(3, 4, 3, 3),
            )
            self.assertEqual(self.ops(layers), ["sign", "conv xnor"])
        text = "p = Pad(x, pads, value); y = AveragePool<kernel_shape=[3, 3]>(p)"
        self.both(text, pads=pads, value=np.float32(0))

    def test_pools(self) -> None:
        same = ', auto_pad="SAME_UPPER", strides=[2, 2]'
        for rest in ("", ", strides=[2, 2], pads=[1, 1, 1, 1]", same):
            pools = [f"MaxPool<kernel_shape=[3, 2]{rest}>(x)"]
            for count in (0, 1):
                if count and rest == same:
                    continue  # onnxruntime has no definite answer
                pools.append(f"AveragePool<kernel_shape=[3, 2]{rest}, count_include_pad={count}>(x)")
            for pool in pools:
                with self.subTest(pool):
                    self.both(f"y = {pool}")
        for op in ("GlobalAveragePool", "GlobalMaxPool"):
            self.both(f"y = {op}(x)")

    def test_arithmetic(self) -> None:
        channel = self.weight(1, 4, 1, 1)
        shapes = (np.float32(1.5), channel, channel[0], self.weight(4, 6, 5), self.weight(6, 5))
        for op in ("Add", "Sub", "Mul", "Div"):
            for constant in shapes:
                for inputs in ("x, c", "c, x")[: 1 if op == "Div" else 2]:
                    with self.subTest(op, inputs=inputs, shape=np.shape(constant)):
                        self.both(f"y = {op}({inputs})", c=constant)
        self.both("r = Relu(x); d = Sub(x, r); y = Add(d, x)")
        self.both("g = GlobalAveragePool(x); s = Sigmoid(g); y = Mul(s, x)")

    def test_activations(self) -> None:
        for op in ("Relu", "LeakyRelu<alpha=0.2>", "Sigmoid", "Neg", "Round", "Softmax<axis=1>"):
            self.both(f"y = {op}(x)")
        self.both("y = PRelu(x, s)", s=self.weight(4, 1, 1))
        for low, high in ((-1, 1), (0, 0.5)):
            self.both("y = Clip(x, l, h)", l=np.float32(low), h=np.float32(high))
        self.both("y = Clip(x, l)", l=np.float32(0))

    def test_channels(self) -> None:
        text = "a, b = Split<axis=1>(x, sizes); y = Concat<axis=1>(b, x, a)"
        self.both(text, sizes=np.array([1, 3], np.int64))
        ends = {"from": np.array([-3]), "to": np.array([2**40]), "axes": np.array([1])}
        self.both("y = Slice(x, from, to, axes)", **ends)

    def test_flattening_channels_last(self) -> None:
        """The dense layer's columns change places."""
        text = (
            "t = Transpose<perm=[0, 2, 3, 1]>(x); r = Relu(t); f = Reshape(r, to);"
            "m = MatMul(f, w); y = Add(m, b)"
        )
        self.both(text, to=np.array([-1, 120]), w=self.weight(120, 7), b=self.weight(7))

    def test_channels_last_input(self) -> None:
        text = "t = Transpose<perm=[0, 3, 1, 2]>(x); y = Conv(t, w)"
        self.both(text, (6, 5, 4), w=self.weight(3, 4, 3, 3))
        config = json.loads((self.path / "m/config.json").read_text())
        self.assertEqual((config["input"]["layout"], config["input"]["shape"]), ("NHWC", [6, 5, 4]))

    def test_computed_shapes(self) -> None:
        self.both(
            "s = Shape(x); n = Gather(s, first); u = Unsqueeze(n, axis);"
            "shape = Concat<axis=0>(u, rest); f = Reshape(x, shape);"
            "y = Gemm<transB=1, alpha=0.5, beta=2.0>(f, w, b)",
            first=np.array(0),
            axis=np.array([0]),
            rest=np.array([-1]),
            w=self.weight(7, 120),
            b=self.weight(7),
        )

    def test_means(self) -> None:
        for keep in (0, 1):
            self.both(f"y = ReduceMean<axes=[2, 3], keepdims={keep}>(x)")

    def test_what_is_refused_names_the_node(self) -> None:
        refused = {
            "Tanh": "Tanh(x)",
            "axis": "Softmax<axis=2>(x)",
            "SAME_LOWER": 'MaxPool<kernel_shape=[2, 2], auto_pad="SAME_LOWER">(x)',
            "two dimensions|2 dimensions|dimensions": "MaxPool<kernel_shape=[2], strides=[1]>(x)",
            "depends on the image": "Conv(x, x)",
            "Pad": "Relu(p)",
            "ceil_mode": "MaxPool<kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1>(x)",
            "order": "Transpose<perm=[0, 2, 1, 3]>(x)",
            "INT32": "Cast<to=6>(x)",
            "no comparison": "Where(x, a, b)",
        }
        constants = {"pads": np.array([0, 0, 1, 1, 0, 0, 1, 1])}
        constants |= {"a": np.float32(1), "b": np.float32(-1)}
        for text, node in refused.items():
            padded = "p = Pad(x, pads); " if text == "Pad" else ""
            path = self.graph(f"{padded}odd: y = {node}", **constants)
            with self.subTest(text), self.assertRaisesRegex(ConvertError, f'"odd".*({text})'):
                convert(path, Preprocessing())

    def test_log_softmax_is_left_out_at_the_end_alone(self) -> None:
        net = convert(self.graph("r = Relu(x); y = LogSoftmax<axis=1>(r)"), Preprocessing())
        self.assertEqual(self.ops(net.layers), ["prelu"])
        self.assertFalse(net.same_outputs)
        with self.assertRaisesRegex(ConvertError, "end alone"):
            convert(self.graph("l = LogSoftmax<axis=1>(x); y = Relu(l)"), Preprocessing())

    def test_zero_weights(self) -> None:
        weight = self.weight(3, 4, 3, 3)
        weight[0, 0, 0] = 0
        path = self.graph("s = Sign(w); a = Sign(x); y = Conv(a, s)", w=weight)
        net = convert(path, Preprocessing())
        self.assertIn('3 values of "w" are exactly 0', net.notes[0])
        self.assertEqual(net.layers[-1]["mode"], "xnor")


if __name__ == "__main__":
    unittest.main()
