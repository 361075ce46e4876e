// Transcripts as files that players and spreadsheets read.
#pragma once

#include <span>
#include <string>

#include "situ/speech.h"

namespace situ::cli {

// "01:02:03,004" for srt, "01:02:03.004" else; hours only where there are some, or `always_hours`. Not below 0.
std::string time_text(double seconds, char mark, bool always_hours);

// Whole files. Text of a segment is one line: without control characters, and without the arrow that ends a cue.
std::string srt(std::span<const SpeechSegment> segments);
std::string vtt(std::span<const SpeechSegment> segments);  // WebVTT, W3C
std::string tsv(std::span<const SpeechSegment> segments);  // start and end in milliseconds
std::string plain_text(std::span<const SpeechSegment> segments);
// "[00:01.000 --> 00:02.500] text"
std::string line_of(const SpeechSegment& segment, bool times);

}  // namespace situ::cli
