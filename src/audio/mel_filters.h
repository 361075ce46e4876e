// Triangular filters on the mel scale.
#pragma once

#include <vector>

namespace situ {

// One filter: weights of the bins [first, first + weights.size()) of a power spectrum; all others are 0.
struct MelFilter {
  int first = 0;
  std::vector<double> weights;
};

// `mels` filters from 0 Hz to rate / 2 over fft / 2 + 1 bins. Scale: slaney (linear to 1,000 Hz, then logarithmic);
// norm: slaney (each filter has the area 1 over its frequencies). Source: transformers, audio_utils.py,
// mel_filter_bank(norm="slaney", mel_scale="slaney"); librosa.filters.mel.
std::vector<MelFilter> make_mel_filters(int mels, int fft, int rate);

}  // namespace situ
