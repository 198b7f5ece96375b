"""The command line."""

import argparse
import re
import shutil
import sys
from pathlib import Path
from typing import Callable, Optional, Sequence

from . import ConvertError, checkpoint, folder, index, zeros
from .checkpoint import Checkpoint
from .families import FAMILIES, Family
from .network import Network
from .preprocess import Preprocessing

ABOUT = """Converts a trained binary network into a model folder of xnord:

  xnord-convert --family birealnet18 checkpoint.pth.tar -o models/birealnet18
  xnord-convert model.onnx -o models/mine --check
  xnord-convert --index codes.npy --ids ids.txt -o models/codes --check

FILE is a PyTorch checkpoint (.pth, .pt, .tar), .safetensors or .npz with a state dict's names,
Keras' .h5, MXNet's .params, all with --family; or .onnx, also with QONNX's operators, without.
--index takes packed codes, uint8 [rows, bytes], and makes an exact Hamming index of them; a query
has the codes' order of bits, whichever that is.

A family is an architecture to the last detail. Tensors of another one that has the same names and
shapes are refused where the file can tell; where it cannot, --list-families says what is assumed.
To be sure export to ONNX: --check then compares with the network as it was exported.

Exit status: 0, converted; 1, not, or --check says that outputs differ; 2, wrong options."""

VALUES = (
    "three numbers a,b,c of values in 0 to 1 (UINT8 is divided by 255 first); --mean=-0.1,.. "
    "where the first is negative"
)


def parse(arguments: Optional[Sequence[str]]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "xnord-convert",
        description=ABOUT,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("file", metavar="FILE", type=Path, nargs="?")
    add("-o", "--output", metavar="DIR", type=Path, help="the model folder to write")
    add("--family", choices=FAMILIES, metavar="NAME", help="the architecture; see --list-families")
    add("--list-families", action="store_true", help="print them and their sources, and end")
    add("--name", help="the model's name (without it the output folder's)")
    add(
        "--index",
        type=Path,
        nargs="+",
        metavar="CODES.npy",
        help="make an index of codes; of several files each is a shard, with an output of its own",
    )
    add("--ids", type=Path, nargs="+", metavar="TEXT", help="for each of them an id a line")
    add("--k", type=int, default=10, help="how many of the nearest an index gives (10)")
    add("--labels", metavar="TEXT", type=Path, help="a file with a class's name a line")
    add(
        "--size",
        type=_size,
        metavar="HxW",
        help="of an image, where the file does not say (without it the family's)",
    )
    add(
        "--input-datatype",
        choices=("FP32", "FP16", "UINT8"),
        default="FP32",
        help="what clients send (FP32: what the network was trained on)",
    )
    add("--layout", choices=("NCHW", "NHWC"), help="how an image of a client lies (NCHW)")
    add("--mean", type=_numbers, help=f"subtracted from what clients send: {VALUES}")
    add("--std", type=_numbers, help="what that is divided by: as --mean")
    add(
        "--sign-zero",
        choices=("plus",),
        help="plus: convert also where the sign of exactly 0, which is 0 in PyTorch and ONNX, "
        "matters, and becomes +1 (without it that is an error)",
    )
    add("--logits", action="store_true", help="leave a softmax at the end out")
    add(
        "--precision",
        choices=("fp32", "tf32", "fp16"),
        default="fp32",
        help="the least that will do for layers of real numbers, and between layers (fp32)",
    )
    add("--max-batch-size", type=int, metavar="N", help="images of one request (the daemon's 1024)")
    add(
        "--check",
        action="store_true",
        help="serve the folder, and say whether random images' outputs are those of ONNX Runtime, "
        "or, for other files, what PyTorch computes from the folder",
    )
    add("--check-images", type=_count, default=4, metavar="N", help="how many (4)")
    add("--check-backend", default="ref", metavar="NAME", help="the daemon's --backend (ref)")
    add(
        "--xnord",
        type=Path,
        metavar="PROGRAM",
        help="the daemon, for --check (build/xnord, or else the one in PATH)",
    )
    add(
        "--allow-unread",
        action="store_true",
        help="do not mind tensors that the family does not read",
    )
    add("-q", "--quiet", action="store_true", help="say nothing but what went wrong")
    return parser.parse_args(arguments)


def _count(text: str) -> int:
    if not re.fullmatch(r"[1-9]\d{0,5}", text):
        raise argparse.ArgumentTypeError(f"{text!r}: expected 1 to 999999")
    return int(text)


def _numbers(text: str) -> tuple[float, ...]:
    return tuple(float(number) for number in text.split(","))


def _size(text: str) -> tuple[int, int]:
    found = re.fullmatch(r"([1-9]\d*)(?:x([1-9]\d*))?", text)
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r}: expected HxW, as 224x224")
    return int(found[1]), int(found[2] or found[1])


def main(arguments: Optional[Sequence[str]] = None) -> int:
    options = parse(arguments)
    if options.list_families:
        print(family_list())
        return 0
    try:
        run(options)
    except ModuleNotFoundError as error:
        return fail(f"it needs the Python package {error.name}: pip install {error.name}")
    except ConvertError as error:
        return fail(str(error))
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return fail(f"{where}{error.strerror or error}")
    return 0


def fail(text: str) -> int:
    print(f"xnord-convert: {text}", file=sys.stderr)
    return 1


def family_list() -> str:
    rows = []
    for name, family in FAMILIES.items():
        shape = "x".join(map(str, family.shape))
        rows.append(f"{name:<26}{shape:<12}{family.source}")
        if family.assumed:
            rows.append(f"{'':<38}assumed: {family.assumed}")
    return "\n".join(rows)


def run(options: argparse.Namespace) -> None:
    say = (lambda text: None) if options.quiet else (lambda text: print(text, file=sys.stderr))
    if (options.file is None) == (options.index is None) or options.output is None:
        raise ConvertError("it needs FILE or --index, and -o DIR; --help says more")
    name = options.name or options.output.resolve().name
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,128}", name) or name in (".", ".."):
        raise ConvertError(f'the name "{name}" must be 1 to 128 of A-Z a-z 0-9 . _ -; give --name')
    if options.max_batch_size is not None and not 1 <= options.max_batch_size < 2**31:
        raise ConvertError(
            f"--max-batch-size is {options.max_batch_size}; it must be from 1 to {2**31 - 1}"
        )
    if options.index:
        make_index(options, name, say)
        return
    labels = folder.read_labels(options.labels) if options.labels else None
    steps = 3 if options.check else 2
    say(f"1/{steps} reading {options.file}")
    network = convert(options)
    if options.logits:
        network.leave_softmax_out()
    network.drop_unread()
    zeros.check(network, options.sign_zero == "plus")
    check_labels(network, labels)
    say(summary(network))
    say(f"2/{steps} writing {options.output}")
    folder.write(options.output, network, name, options.max_batch_size, options.precision, labels)
    say(
        f"wrote {options.output}: config.json, model.safetensors"
        + (", labels.txt" if labels else "")
    )
    if options.check:
        check_folder(options, network, say)


def make_index(options: argparse.Namespace, name: str, say: Callable[[str], None]) -> None:
    if options.family or options.labels or options.size or options.logits:
        raise ConvertError("--index takes --ids, --k, --name and --max-batch-size beside -o")
    shards = index.read(options.index, options.ids, options.k)
    config = index.config_of(shards, name, options.k, options.max_batch_size)
    index.write(options.output, shards, config)
    say(f"wrote {options.output}: {sum(len(s.codes) for s in shards)} codes")
    if options.check:
        text, same = index.check(
            options.output,
            shards,
            options.k,
            program_of(options),
            options.check_backend,
            options.check_images,
        )
        print(text, flush=True)
        if not same:
            raise ConvertError(f"--check: {options.output} does not find what it should")


def program_of(options: argparse.Namespace) -> Path:
    program = options.xnord or Path("build/xnord")
    if not options.xnord and not program.is_file():
        program = Path(shutil.which("xnord") or program)
    return program


def check_folder(options: argparse.Namespace, network: Network, say: Callable[[str], None]) -> None:
    from .check import check

    text, same = check(
        options.output,
        options.file if network.same_outputs else None,
        program_of(options),
        options.check_backend,
        options.check_images,
        seed=1,
        say=lambda text: say(f"3/3 {text}"),
    )
    print(text, flush=True)
    if not same:
        raise ConvertError(f"--check: {options.output} does not compute what it should")


def convert(options: argparse.Namespace) -> Network:
    if options.file.suffix == ".onnx":
        from . import onnx_file

        if options.family or options.size:
            raise ConvertError("an ONNX file says itself what it is: leave out --family and --size")
        return onnx_file.convert(
            options.file,
            Preprocessing(options.input_datatype, options.layout, options.mean, options.std),
        )
    if not options.family:
        raise ConvertError(
            f"{options.file}: a checkpoint has no architecture; name it by --family "
            f"({', '.join(FAMILIES)}), or {checkpoint.EXPORT}"
        )
    return convert_checkpoint(options)


def convert_checkpoint(options: argparse.Namespace) -> Network:
    family = FAMILIES[options.family]
    mean, std, note = options.mean, options.std, None
    if options.input_datatype == "UINT8" and mean is None and std is None:
        mean, std = family.preprocessing or (None, None)
        note = (
            f"{options.family}: UINT8 is divided by 255"
            + (f", then mean {mean} and std {std}" if mean else "")
            + "; --mean and --std say otherwise"
        )
    channels, height, width = family.shape
    if options.size:
        height, width = options.size
    network, x = Preprocessing(options.input_datatype, options.layout, mean, std).begin(
        (channels, height, width)
    )
    raw = options.input_datatype != "UINT8" and options.mean is None and options.std is None
    network.picture = family.picture((height, width), raw)
    found = checkpoint.read(options.file)
    check_source(options, family, found)
    try:
        family.build(network, found, x)
    except (ValueError, IndexError, KeyError) as error:  # numpy's, of shapes that nobody expected
        raise ConvertError(
            f"{options.file}: its tensors do not fit {options.family}: {error}"
        ) from error
    if note:
        network.notes.append(note)
    if family.assumed:
        network.notes.append(f"{options.family}: assumed that {family.assumed}")
    if family.zero == 0:
        for layer in network.layers:
            if layer["op"] == "sign" or layer.get("mode") == "xnor":
                network.doubtful[layer["name"]] = f'layer "{layer["name"]}"'
    unread = found.not_taken()
    if unread and not options.allow_unread:
        raise ConvertError(
            f"{options.family} does not read {len(unread)} tensors of the file: "
            f"{', '.join(unread[:8])}{', ...' if len(unread) > 8 else ''}. Is it "
            "another network? --allow-unread converts it all the same"
        )
    return network


def check_source(options: argparse.Namespace, family: Family, found: Checkpoint) -> None:
    """What the file says beside names and shapes."""
    if family.keras is not None and found.keras != family.keras:
        raise ConvertError(
            f"{options.file}: {options.family} reads {family.source}, and this is "
            f"{'a' if found.keras else 'no'} file of Keras: another framework's network of the same "
            "name pads and orders its layers differently. Export it to ONNX instead"
        )
    bits = re.search(r"(\d)w(\d)a", options.file.name.lower())
    if options.family in ("cnv", "lfc") and bits and bits[0] != "1w1a":
        raise ConvertError(f"{options.file}: by its name it is {bits[0]}; {options.family} is 1w1a")


def check_labels(network: Network, labels: Optional[list[str]]) -> None:
    if labels is None:
        return
    classes = network.channels(network.outputs[0][1])
    if len(labels) > classes:
        raise ConvertError(f"there are {len(labels)} labels and {classes} classes")


def summary(network: Network) -> str:
    binary = [layer for layer in network.layers if layer.get("mode", "float") != "float"]
    size = sum(values.nbytes for values in network.tensors.values())
    lines = [
        f"{len(network.layers)} layers, {len(binary)} of them with binary weights; "
        f"{size:,} bytes of tensors"
    ]
    if network.zeros:
        total = sum(network.zeros.values())
        some = ", ".join(f"{name} {count}" for name, count in list(network.zeros.items())[:8])
        lines.append(
            f"{total} binary weights are exactly 0 ({some}{', ...' * (len(network.zeros) > 8)}"
            "): they are +1 here, 0 in PyTorch"
        )
    return "\n".join(lines + network.notes)
