#include "cli/subtitles.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace situ::cli {
namespace {

long long milliseconds(double seconds) { return std::max(0LL, std::llround(seconds * 1000)); }

std::string one_cue(const std::string& text) {
  std::string line;
  for (const char c : text) line += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? ' ' : c;
  for (size_t at; (at = line.find("-->")) != std::string::npos;) line.replace(at, 3, "->");
  const size_t from = line.find_first_not_of(' '), to = line.find_last_not_of(' ');
  return from == std::string::npos ? "" : line.substr(from, to - from + 1);
}

}  // namespace

std::string time_text(double seconds, char mark, bool always_hours) {
  const long long ms = milliseconds(seconds), hours = ms / 3600000;
  char text[64];
  int at = 0;
  if (always_hours || hours > 0) at = std::snprintf(text, sizeof(text), "%02lld:", hours);
  std::snprintf(text + at, sizeof(text) - static_cast<size_t>(at), "%02lld:%02lld%c%03lld", ms / 60000 % 60,
                ms / 1000 % 60, mark, ms % 1000);
  return text;
}

std::string srt(std::span<const SpeechSegment> segments) {
  std::string out;
  for (size_t i = 0; i < segments.size(); ++i)
    out += std::to_string(i + 1) + "\n" + time_text(segments[i].start, ',', true) + " --> " +
           time_text(segments[i].end, ',', true) + "\n" + one_cue(segments[i].text) + "\n\n";
  return out;
}

std::string vtt(std::span<const SpeechSegment> segments) {
  std::string out = "WEBVTT\n\n";
  for (const SpeechSegment& s : segments)
    out += time_text(s.start, '.', false) + " --> " + time_text(s.end, '.', false) + "\n" + one_cue(s.text) + "\n\n";
  return out;
}

std::string tsv(std::span<const SpeechSegment> segments) {
  std::string out = "start\tend\ttext\n";
  for (const SpeechSegment& s : segments)
    out += std::to_string(milliseconds(s.start)) + "\t" + std::to_string(milliseconds(s.end)) + "\t" + one_cue(s.text) +
           "\n";
  return out;
}

std::string plain_text(std::span<const SpeechSegment> segments) {
  std::string out;
  for (const SpeechSegment& s : segments) out += one_cue(s.text) + "\n";
  return out;
}

std::string line_of(const SpeechSegment& segment, bool times) {
  const std::string text = one_cue(segment.text);
  return (times ? "[" + time_text(segment.start, '.', false) + " --> " + time_text(segment.end, '.', false) + "] "
                : "") +
         text + "\n";
}

}  // namespace situ::cli
