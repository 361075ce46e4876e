// The ids of a window, cut into segments by their timestamps. Source: transcribe() of openai/whisper.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "speech/speech_tokens.h"

namespace situ {

struct CutSegment {
  double start = 0, end = 0;    // seconds from the window's start
  std::vector<int64_t> tokens;  // with timestamps
};

struct CutWindow {
  std::vector<CutSegment> segments;
  double next = 0;     // seconds from this window's start to that of the next
  bool ended = false;  // the text ends with a timestamp that has no pair: nothing is said behind it
};

// `duration`: seconds of audio in the window, at least one sample. Where the text ends within a segment, the next
// window begins at that segment; else behind this one. Times are within the window, and `next` is above 0. `alone`: no
// window follows to say it again: that segment ends with the window, if it has text.
CutWindow cut_segments(std::span<const int64_t> ids, double duration, const SpeechTokens& tokens, bool alone = false);

}  // namespace situ
