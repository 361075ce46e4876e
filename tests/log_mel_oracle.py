#!/usr/bin/env python3
"""Prints the numbers of src/audio/log_mel_numbers.h: spectrograms by WhisperFeatureExtractor of transformers.

No test runs it: it needs numpy and transformers (5.24.0 was used, in an environment of its own).
"""

import numpy as np
from transformers import WhisperFeatureExtractor

# (row as a share of all rows, column) of the values that are compared.
PROBES = [(row, column) for row in (0.0, 0.1, 0.3, 0.5, 0.99) for column in (0, 1, 7, 500, 999, 1001, 2998, 2999)]


def noise(count):
    """A linear congruential generator, so that C++ makes the same samples."""
    state, samples = 1, np.empty(count, np.float32)
    for i in range(count):
        state = (state * 1664525 + 1013904223) % 2**32
        samples[i] = np.float32(((state >> 8) / 2**24 - 0.5) * 0.2)
    return samples


def tone(hz, count):
    return (0.5 * np.sin(2 * np.pi * hz * np.arange(count) / 16000)).astype(np.float32)


SIGNALS = {
    "silence": np.zeros(16000, np.float32),
    "sine": tone(440, 160000),
    "noise": noise(480000),
    "one": np.array([0.25], np.float32),
    "long": tone(3000, 480160),
}


def main():
    for mels in (80, 128):
        extract = WhisperFeatureExtractor(feature_size=mels)
        for name, samples in SIGNALS.items():
            features = extract(samples, sampling_rate=16000, return_tensors="np")["input_features"][0]
            values = [features[int(row * mels), column] for row, column in PROBES]
            mean = float(features.astype(np.float64).mean())
            print(f'    {{"{name}", {mels}, {mean:.7f},')
            for start in range(0, len(values), 8):
                row = ", ".join(f"{value:.6f}f" for value in values[start : start + 8])
                print(f"     {'{' if start == 0 else ' '}{row}{'}},' if start + 8 >= len(values) else ','}")


if __name__ == "__main__":
    main()
