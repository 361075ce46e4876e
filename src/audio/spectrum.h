// The power spectrum of the Rust library, owned.
#pragma once

#include <memory>

#include "audio/situ_audio.h"

namespace situ {

struct FreeSpectrum {
  void operator()(situ_audio_spectrum* spectrum) const { situ_audio_spectrum_free(spectrum); }
};
using Spectrum = std::unique_ptr<situ_audio_spectrum, FreeSpectrum>;

}  // namespace situ
