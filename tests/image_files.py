"""Images that Pillow cannot write, and what stands around the pixels: bytes by hand."""

import struct
import zlib

PNG = b"\x89PNG\r\n\x1a\n"
# x and y of the first pixel and the steps of each of the seven passes of an interlaced png.
ADAM7 = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]
PNG_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png_header(width, height, depth, colour, interlaced=False):
    return PNG + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, int(interlaced)))


def png_row(samples, depth):
    """Samples of one row (integers) as bytes."""
    if depth == 16:
        return b"".join(struct.pack(">H", s) for s in samples)
    bits = "".join(format(s, f"0{depth}b") for s in samples)
    bits += "0" * (-len(bits) % 8)
    return bytes(int(bits[i:i + 8], 2) for i in range(0, len(bits), 8))


def png(rows, depth, colour, interlaced=False, before=b"", after=b"", palette=None):
    """rows: lists of samples, all channels of a pixel together. before, after: chunks on either side of the pixels."""
    channels = PNG_CHANNELS[colour]
    height, width = len(rows), len(rows[0]) // channels
    data = b""
    for x0, y0, dx, dy in ADAM7 if interlaced else [(0, 0, 1, 1)]:
        for row in rows[y0::dy]:
            part = [s for x in range(x0, width, dx) for s in row[x * channels:(x + 1) * channels]]
            data += b"\0" + png_row(part, depth) if part else b""
    table = chunk(b"PLTE", bytes(palette)) if palette else b""
    return png_header(width, height, depth, colour, interlaced) + table + before + chunk(b"IDAT", zlib.compress(data)) + after + chunk(b"IEND", b"")


def gif(screen, frame, offset, pixels, transparent=None, palette=bytes(range(10, 130, 10)), count=1):
    """A gif of 4 colours whose frames (`count` times the same) may lie anywhere on the screen. pixels: indices."""
    data = b"GIF89a" + struct.pack("<HHBBB", *screen, 0x81, 2, 0) + palette
    for _ in range(count):
        if transparent is not None:
            data += b"\x21\xf9\x04" + struct.pack("<BHB", 1, 0, transparent) + b"\0"
        data += b"\x2c" + struct.pack("<HHHHB", *offset, *frame, 0)
        # LZW with 3 bits a code, begun anew (4) after every second pixel, so that no code gets longer.
        codes = [4]
        for i, pixel in enumerate(pixels):
            codes += [pixel] + ([4] if i % 2 else [])
        bits = "".join(format(code, "03b")[::-1] for code in [*codes, 5])
        packed = bytes(int(bits[i:i + 8][::-1], 2) for i in range(0, len(bits), 8))
        data += b"\x02" + b"".join(bytes([len(packed[i:i + 255])]) + packed[i:i + 255] for i in range(0, len(packed), 255)) + b"\0"
    return data + b";"


def exif(orientation, big=True, kind=3):
    """A TIFF with the tag Orientation alone. kind: 1 BYTE, 3 SHORT, 4 LONG."""
    order = ">" if big else "<"
    value = struct.pack(order + {1: "B3x", 3: "H2x", 4: "I"}[kind], orientation)
    return (b"MM\0*" if big else b"II*\0") + struct.pack(order + "IHHHI", 8, 1, 0x0112, kind, 1) + value + b"\0\0\0\0"


def xmp(orientation):
    return f'<x:xmpmeta><rdf:Description tiff:Orientation="{orientation}"/></x:xmpmeta>'.encode()


def raw_profile(orientation):
    """The text that ImageMagick writes into a png."""
    data = b"Exif\0\0" + exif(orientation)
    digits = data.hex()
    return b"\nexif\n%8d\n" % len(data) + b"\n".join(digits[i:i + 72].encode() for i in range(0, len(digits), 72)) + b"\n"


def jpeg_header(width, height):
    """A baseline jpeg that says its size, and has no more."""
    frame = struct.pack(">BHHB", 8, height, width, 3) + bytes([1, 0x11, 0, 2, 0x11, 0, 3, 0x11, 0])
    return b"\xff\xd8\xff\xc0" + struct.pack(">H", len(frame) + 2) + frame + b"\xff\xda\0\x0c\x03\x01\0\x02\0\x03\0\0\x3f\0" + bytes(64)


def riff(*chunks):
    body = b"WEBP" + b"".join(kind + struct.pack("<I", len(data)) + data + b"\0" * (len(data) % 2) for kind, data in chunks)
    return b"RIFF" + struct.pack("<I", len(body)) + body


def webp_header(width, height):
    """A lossless webp that says its size, and has no more."""
    return riff((b"VP8L", b"\x2f" + struct.pack("<I", (width - 1) | (height - 1) << 14) + bytes(16)))
