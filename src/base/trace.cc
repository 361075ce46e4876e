#include "base/trace.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>

namespace situ {
namespace {

// JSON's escapes for what a file may call a node.
std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) >= 0x20) {
      out += c;
      continue;
    }
    char escape[8];
    std::snprintf(escape, sizeof(escape), "\\u%04x", static_cast<unsigned>(static_cast<unsigned char>(c)));
    out += escape;
  }
  return out + "\"";
}

}  // namespace

Trace::Trace(int threads, size_t capacity)
    : events_(static_cast<size_t>(threads)), dropped_(static_cast<size_t>(threads)), capacity_(capacity) {
  for (auto& list : events_) list.reserve(capacity);
}

int64_t Trace::now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

int32_t Trace::name(Name name) {
  names_.push_back(std::move(name));
  return static_cast<int32_t>(names_.size()) - 1;
}

void Trace::add(int thread, const TraceEvent& event) {
  auto& list = events_[static_cast<size_t>(thread)];
  if (list.size() < capacity_)
    list.push_back(event);
  else
    ++dropped_[static_cast<size_t>(thread)];
}

void Trace::clear() {
  for (auto& list : events_) list.clear();
  std::fill(dropped_.begin(), dropped_.end(), 0);
}

Status Trace::write(const std::string& path) const {
  // Whole or not at all: a file that was there stays until the new one is complete. A link goes on leading to it;
  // devices and pipes are written to, not replaced.
  std::error_code error;
  if (std::filesystem::is_symlink(path, error) && !std::filesystem::exists(path, error))
    return Status::error(path + ": a link that leads nowhere");
  const bool there = std::filesystem::exists(path, error),
             whole = !there || std::filesystem::is_regular_file(path, error);
  const std::string to = there ? std::filesystem::canonical(path, error).string() : path,
                    part = whole ? to + ".part" : to;
  std::FILE* file = std::fopen(part.c_str(), whole ? "wx" : "w");
  if (!file) return Status::error(part + ": cannot be written");
  int64_t origin = INT64_MAX, dropped = 0;
  for (const auto& list : events_)
    for (const TraceEvent& e : list) origin = std::min(origin, e.ready);
  for (int64_t d : dropped_) dropped += d;
  std::fprintf(file, "{\"displayTimeUnit\":\"ns\",\"otherData\":{\"dropped_events\":%lld},\"traceEvents\":[\n",
               static_cast<long long>(dropped));
  const char* separator = "";
  auto span = [&](int thread, const std::string& name, const std::string& where, const char* category, int64_t begin,
                  int64_t end) {
    std::fprintf(file,
                 "%s{\"ph\":\"X\",\"pid\":1,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f,\"cat\":\"%s\",\"name\":%s,\"args\":{"
                 "\"node\":%s}}",
                 separator, thread, static_cast<double>(begin - origin) / 1000.0,
                 static_cast<double>(end - begin) / 1000.0, category, quoted(name).c_str(), quoted(where).c_str());
    separator = ",\n";
  };
  for (int t = 0; t < threads(); ++t)
    for (const TraceEvent& e : events(t)) {
      const Name& n = names_[static_cast<size_t>(e.name)];
      if (e.begin > e.ready) span(t, "wait", n.where, "barrier", e.ready, e.begin);
      span(t, n.kind, n.where, n.kind == "token" ? "token" : "kernel", e.begin, e.end);
    }
  std::fprintf(file, "\n]}\n");
  const bool failed = std::ferror(file) != 0;
  if (std::fclose(file) == 0 && !failed && (!whole || std::rename(part.c_str(), to.c_str()) == 0)) return Status::ok();
  if (whole) std::remove(part.c_str());
  return Status::error(path + ": writing failed");
}

}  // namespace situ
