# SPDX-License-Identifier: Apache-2.0
"""Front ends against independent ones: pictures against Pillow and timm's transform, MFCC against KWT-1's own
tflite graph, log-mel against Whisper's definition in NumPy, resampling against a sine's closed form.
The bounds are those docs/MEDIA.md states."""
import io
import pathlib
import struct
import subprocess
import tarfile
import wave

import numpy as np
import pytest

import text_peer
from conftest import test_data as data_path

TOOL = text_peer.BUILD / "tests" / "media_tool"
pytestmark = pytest.mark.skipif(not TOOL.exists(), reason=f"{TOOL} is not built")


def run(*words, data=None, folder=None):
    """The tool's floats; `data` goes through a file of its own."""
    if data is not None:
        path = folder / "input"
        path.write_bytes(data)
        words = (*words, path)
    done = subprocess.run([TOOL, *map(str, words)], capture_output=True, timeout=120)
    assert done.returncode in (0, 1), done
    if done.returncode:
        raise ValueError(done.stderr.decode().strip())
    return np.frombuffer(done.stdout, np.float32)


# ---------------------------------------------------------------- pictures

def timm_transform(Image, picture, size, crop, interpolation):
    """Resize of the short side, centre crop: torchvision's arithmetic."""
    picture = picture.convert("RGB")
    side = int(np.floor(size / crop))
    w, h = picture.size
    new = (side, int(side * h / w)) if w <= h else (int(side * w / h), side)
    method = Image.Resampling.BICUBIC if interpolation == "bicubic" else Image.Resampling.BILINEAR
    picture = picture.resize(new, method)
    left, top = int(round((new[0] - size) / 2.0)), int(round((new[1] - size) / 2.0))
    return np.asarray(picture.crop((left, top, left + size, top + size))).transpose(2, 0, 1)


def levels(values, size):
    return np.rint(values.reshape(3, size, size) * 255).astype(int)


SETTINGS = [(224, 0.9, "bicubic"), (224, 0.875, "bilinear"), (224, 1.0, "bicubic"), (96, 0.95, "bilinear")]


@pytest.mark.parametrize("size,crop,interpolation", SETTINGS)
def test_photographs(size, crop, interpolation):
    Image = pytest.importorskip("PIL.Image")
    files = sorted(p for p in data_path("image", "imagenet-samples").rglob("*") if p.suffix.lower() in (".jpeg", ".jpg"))
    assert len(files) >= 10
    worst = 0
    for path in files:
        want = timm_transform(Image, Image.open(path), size, crop, interpolation)
        worst = max(worst, abs(levels(run("image", size, crop, interpolation, path), size) - want).max())
    print("largest difference in levels of 255:", worst)
    assert worst <= 1


def test_grey_photographs(tmp_path):
    Image = pytest.importorskip("PIL.Image")
    with tarfile.open(data_path("image", "magnetic-tile.tar")) as tar:
        members = [m for m in tar if m.name.endswith(".jpg")][::100]
        for m in members:
            data = tar.extractfile(m).read()
            want = timm_transform(Image, Image.open(io.BytesIO(data)), 224, 0.9, "bicubic")
            got = levels(run("image", 224, 0.9, "bicubic", data=data, folder=tmp_path), 224)
            assert abs(got - want).max() <= 1


def noise(shape, kind=np.uint8, seed=0):
    return np.random.default_rng(seed).integers(0, np.iinfo(kind).max + 1, shape, dtype=kind)


@pytest.mark.parametrize("mode", ["L", "LA", "RGB", "RGBA", "P", "1"])
@pytest.mark.parametrize("w,h", [(1, 1), (3, 2), (61, 47), (300, 280), (640, 33)])
def test_png_is_equal(mode, w, h, tmp_path):
    """PNG is lossless, so every level must be Pillow's own."""
    Image = pytest.importorskip("PIL.Image")
    picture = Image.fromarray(noise((h, w, 4), seed=w), "RGBA").convert(mode)
    file = io.BytesIO()
    picture.save(file, "PNG")
    for interpolation in ("bicubic", "bilinear"):
        want = timm_transform(Image, Image.open(io.BytesIO(file.getvalue())), 64, 0.9, interpolation)
        got = levels(run("image", 64, 0.9, interpolation, data=file.getvalue(), folder=tmp_path), 64)
        assert (got == want).all()


def test_png_of_16_bits(tmp_path):
    """The upper eight bits, grey and colour."""
    Image = pytest.importorskip("PIL.Image")
    import zlib
    for channels, colour in ((1, 0), (3, 2), (4, 6)):
        deep = noise((50, 70, channels), np.uint16, channels)
        rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in deep)

        def chunk(kind, body):
            return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        png = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 70, 50, 16, colour, 0, 0, 0)) + \
            chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
        shallow = np.repeat(deep >> 8, 3, 2) if channels == 1 else (deep >> 8)[..., :3]
        want = timm_transform(Image, Image.fromarray(shallow.astype(np.uint8)), 48, 1.0, "bicubic")
        assert (levels(run("image", 48, 1.0, "bicubic", data=png, folder=tmp_path), 48) == want).all()


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_orientation(orientation, order, kind, tmp_path):
    Image = pytest.importorskip("PIL.Image")
    from PIL import ImageOps
    ramp = np.stack(np.meshgrid(np.arange(90) * 2, np.arange(70) * 3), -1)
    picture = Image.fromarray(np.concatenate([ramp, ramp[..., :1] // 2], -1).astype(np.uint8))
    tiff = (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(order + "IHHHIHHI", 8, 1, 0x112, 3, 1, orientation, 0, 0)
    file = io.BytesIO()
    picture.save(file, kind, exif=b"Exif\0\0" + tiff, **({"quality": 95, "subsampling": 0} if kind == "JPEG" else {}))
    upright = ImageOps.exif_transpose(Image.open(io.BytesIO(file.getvalue())))
    assert upright.size == ((90, 70) if orientation < 5 else (70, 90))
    want = timm_transform(Image, upright, 64, 1.0, "bicubic")
    got = levels(run("image", 64, 1.0, "bicubic", data=file.getvalue(), folder=tmp_path), 64)
    assert abs(got - want).max() <= (1 if kind == "JPEG" else 0)


# ------------------------------------------------------------------ sounds

def wav(samples, rate=16000, channels=1, width=2):
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(channels)
        out.setsampwidth(width)
        out.setframerate(rate)
        out.writeframes(samples.astype("<i2").tobytes())
    return file.getvalue()


def samples_of(path):
    """Integers or floats, as the examples have both."""
    data = path.read_bytes()
    kind, channels, rate, _, _, bits = struct.unpack_from("<HHIIHH", data, data.index(b"fmt ") + 8)
    assert (channels, rate) == (1, 16000) and (kind, bits) in ((1, 16), (3, 32), (3, 64)), path
    at = data.index(b"data")
    body = data[at + 8:at + 8 + struct.unpack_from("<I", data, at + 4)[0]]
    return np.frombuffer(body, f"<f{bits // 8}").astype(np.float32) if kind == 3 else \
        np.frombuffer(body, "<i2").astype(np.float32) / 32768


def commands():
    """The examples at 16 kHz; the others are tested through the program, as resampling has its own test."""
    files = sorted(data_path("audio", "command-examples").glob("*.wav"))
    files = [p for p in files if struct.unpack_from("<I", p.read_bytes(), 24)[0] == 16000]
    assert len(files) >= 10
    return files


def clip_of(x, n):
    """The window the front end chooses: padded at the end, the loudest in steps of a hop."""
    if len(x) <= n:
        return np.pad(x, (0, n - len(x)))
    energy = [float((x[s:s + n].astype(np.float64) ** 2).sum()) for s in range(0, len(x) - n + 1, 160)]
    start = 160 * int(np.argmax(energy))
    return x[start:start + n]


@pytest.fixture(scope="module")
def kwt():
    lite = pytest.importorskip("ai_edge_litert.interpreter")
    graph = lite.Interpreter(str(data_path("models", "kwt1", "non_stream.tflite")), experimental_preserve_all_tensors=True,
                             experimental_op_resolver_type=lite.OpResolverType.BUILTIN_REF)
    graph.allocate_tensors()
    mfcc = next(t["index"] for t in graph.get_tensor_details()
                if t["name"].startswith("speech_features/normalizer/truediv") and list(t["shape"]) == [98, 40])

    def features(x):
        graph.set_tensor(0, x[None].astype(np.float32))
        graph.invoke()
        return graph.get_tensor(mfcc)
    return features


def test_mfcc_is_the_graphs(kwt):
    worst = 0
    for path in commands():
        want = kwt(clip_of(samples_of(path), 16000))
        worst = max(worst, abs(run("mfcc", path).reshape(98, 40) - want).max())
    print("largest MFCC difference:", worst)
    assert worst <= 1e-3


def test_mfcc_of_noise_silence_and_tones(kwt, tmp_path):
    rng = np.random.default_rng(1)
    worst = 0
    t = np.arange(16000) / 16000
    for x in (np.zeros(16000), rng.normal(0, 3000, 16000), rng.normal(0, 20, 16000), 20000 * np.sin(2 * np.pi * 440 * t),
              np.r_[rng.normal(0, 3000, 5000)], np.full(16000, 500.0)):
        x = np.clip(np.rint(x), -32768, 32767)
        want = kwt(clip_of(x.astype(np.float32) / 32768, 16000))
        got = run("mfcc", data=wav(x), folder=tmp_path).reshape(98, 40)
        # A pure tone or a constant leaves bands that hold rounding only, where logarithms differ.
        quiet = (np.abs(np.fft.rfft(x[:480], 512)) < 1e-3 * np.abs(np.fft.rfft(x[:480], 512)).max()).any()
        assert np.isfinite(got).all()
        if not quiet or not x.any():
            worst = max(worst, abs(got - want).max())
    print("largest MFCC difference:", worst)
    assert worst <= 1e-2


def slaney_filters(n_mels=80, fft=400, rate=16000):
    def mel(f):
        return np.where(f < 1000, f * 3 / 200, 15 + 27 * np.log(np.maximum(f, 1e-9) / 1000) / np.log(6.4))

    def hz(m):
        return np.where(m < 15, m * 200 / 3, 1000 * np.exp((m - 15) * np.log(6.4) / 27))
    edges = hz(np.linspace(mel(np.array(0.0)), mel(np.array(rate / 2)), n_mels + 2))
    bins = np.arange(fft // 2 + 1) * rate / fft
    up = (bins - edges[:-2, None]) / np.diff(edges)[:-1, None]
    down = (edges[2:, None] - bins) / np.diff(edges)[1:, None]
    return np.maximum(0, np.minimum(up, down)) * (2 / (edges[2:] - edges[:-2]))[:, None]


def whisper_twin(x):
    """Whisper's audio.py in double."""
    x = np.pad(x.astype(np.float64)[:480000], (0, max(0, 480000 - len(x))))
    x = np.pad(x, 200, mode="reflect")
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(400) / 400)
    frames = np.lib.stride_tricks.sliding_window_view(x, 400)[::160][:3000]
    power = np.abs(np.fft.rfft(frames * window)) ** 2
    log = np.log10(np.maximum(power @ slaney_filters().T, 1e-10))
    return (np.maximum(log, log.max() - 8) + 4) / 4


def test_log_mel_is_whispers(tmp_path):
    worst = 0
    for path in commands()[:12]:
        got = run("log-mel", path).reshape(3000, 80)
        worst = max(worst, abs(got - whisper_twin(samples_of(path))).max())
    rng = np.random.default_rng(2)
    for n in (480000, 300000, 160):
        x = np.rint(rng.normal(0, 2000, n))
        got = run("log-mel", data=wav(x), folder=tmp_path).reshape(3000, 80)
        worst = max(worst, abs(got - whisper_twin(x / 32768)).max())
    print("largest log-mel difference:", worst)
    assert worst <= 1e-4
    assert (run("log-mel", data=wav(np.zeros(16000)), folder=tmp_path) == -1.5).all()


def test_mel_filters_are_whispers():
    """The filters inside faster-whisper's or transformers' extractor, where one is installed."""
    extractor = pytest.importorskip("faster_whisper.feature_extractor")
    assert abs(extractor.FeatureExtractor().mel_filters - slaney_filters()).max() < 1e-6


@pytest.mark.parametrize("rate", [8000, 11025, 22050, 44100, 48000])
def test_rates_and_channels(rate, tmp_path):
    """A tone in the passband has the MFCC of the tone written at 16 kHz, whatever the file's rate."""
    def tones(r):
        t = np.arange(2 * r) / r
        return 6000 * sum(np.sin(2 * np.pi * f * t) for f in (150, 700, 1500, 2500))
    want = run("log-mel", data=wav(tones(16000)), folder=tmp_path).reshape(3000, 80)
    stereo = np.stack([tones(rate) * 1.5, tones(rate) * 0.5], 1).reshape(-1)
    stereo = np.clip(stereo, -32768, 32767) if abs(stereo).max() < 32768 else stereo * 0.6
    got = run("log-mel", data=wav(stereo, rate, 2), folder=tmp_path).reshape(3000, 80)
    scale = np.log10(0.6) / 2 if abs(np.stack([tones(rate) * 1.5]).max()) >= 32768 else 0
    middle = slice(30, 150)
    loud = want[middle] > want.max() - 0.5
    difference = abs((got - scale)[middle] - want[middle])[loud].max()
    print(rate, "difference at the tones:", difference)
    assert difference < 0.02


def test_piped_wav(tmp_path):
    """Lengths a pipe cannot know: zero, all ones, and half of that."""
    x = np.rint(np.random.default_rng(5).normal(0, 3000, 12000))
    whole = wav(x)
    want = run("mfcc", data=whole, folder=tmp_path)
    for riff, size in ((0xFFFFFFFF, 0xFFFFFFFF), (0, 0), (0x7FFFFFFF, 0x7FFFFFDB), (0x80000024, 0x80000000)):
        data = bytearray(whole)
        data[4:8], data[40:44] = struct.pack("<I", riff), struct.pack("<I", size)
        assert (run("mfcc", data=bytes(data), folder=tmp_path) == want).all(), hex(size)


def test_flac_and_widths(tmp_path):
    soundfile = pytest.importorskip("soundfile")
    x = np.rint(np.random.default_rng(6).normal(0, 3000, 16000)) / 32768
    want = run("mfcc", data=wav(x * 32768), folder=tmp_path)
    for kind, subtype in (("FLAC", "PCM_16"), ("FLAC", "PCM_24"), ("WAV", "PCM_24"), ("WAV", "PCM_32"), ("WAV", "FLOAT"),
                          ("WAV", "DOUBLE"), ("RF64", "PCM_16")):
        file = io.BytesIO()
        soundfile.write(file, x, 16000, format=kind, subtype=subtype)
        got = run("mfcc", data=file.getvalue(), folder=tmp_path)
        assert abs(got - want).max() < 1e-3, (kind, subtype)


def test_longer_clips_give_their_loudest_window(tmp_path):
    rng = np.random.default_rng(7)
    word = np.rint(rng.normal(0, 6000, 16000))
    x = np.r_[rng.normal(0, 5, 32000), word, rng.normal(0, 5, 20000)]
    assert (run("mfcc", data=wav(np.rint(x)), folder=tmp_path) == run("mfcc", data=wav(word), folder=tmp_path)).all()
