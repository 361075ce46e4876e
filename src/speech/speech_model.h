// A loaded speech model: what SpeechStream works with.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "audio/log_mel.h"
#include "pipelines/llm.h"
#include "situ/speech.h"
#include "speech/speech_tokens.h"

namespace situ {

struct SpeechModel::Impl {
  Model model;
  SpeechTokens tokens;
  LogMel mel;
  std::string input;  // of the encoder: a spectrogram [1, mels, frames]
  Model::Impl& engine() { return impl_of(model); }
  // A session behind the encoder's output for a spectrogram [mels, frames].
  Result<Session> encode(std::span<const float> spectrogram);
};

}  // namespace situ
