// What a server bounds, so that no request takes more than its share: one table for the program, --config and
// docs/limits.md.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "situ/status.h"

namespace situ::serve {

struct Limits {
  int64_t header_bytes = 32 << 10;
  int64_t headers = 100;
  int64_t body_bytes = 64 << 20;
  int64_t connections = 2048;
  int64_t header_seconds = 60;
  int64_t idle_seconds = 120;
  int64_t body_seconds = 60;
  int64_t write_seconds = 30;
  int64_t least_write_rate = 1024;
  int64_t unread_bytes = 1 << 20;
  int64_t preparing = 2048;
  int64_t ping_seconds = 10;
  // Of what bodies hold.
  int64_t json_depth = 64;
  int64_t messages = 4096;
  int64_t texts = 2048;
  int64_t choices = 16;
  int64_t stops = 16;
  int64_t stop_bytes = 256;
  int64_t token_rules = 1024;
  int64_t grammar_bytes = 256 << 10;
  int64_t images = 16;
  int64_t image_pixels = 20'000'000;
  int64_t sound_bytes = 25 << 20;
  int64_t sound_seconds = 14400;
};

struct LimitEntry {
  const char* name;
  int64_t Limits::* value;
  int64_t least, most;
  const char* what;  // and what happens beyond it
};
std::span<const LimitEntry> limit_entries();
// Error: no such limit, a value out of its range.
Status set_limit(Limits& limits, const std::string& name, const std::string& value);

}  // namespace situ::serve
