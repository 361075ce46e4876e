#include "serve/metrics.h"

#include <unistd.h>

#include <array>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace situ::serve {
namespace {

struct SeriesEntry {
  const char *name, *help;
  std::vector<double> bounds;
};

const SeriesEntry& entry_of(int series) {
  const std::vector<double> seconds{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25,
                                    0.5,   1,      2.5,   5,    10,    30,   60,  300};
  const std::vector<double> tokens{1, 4, 16, 64, 256, 1024, 4096, 16384, 65536};
  static const std::array<SeriesEntry, Metrics::kSeries> entries{{
      {"situ_time_to_first_token_seconds", "From a request to its first token.", seconds},
      {"situ_inter_token_seconds", "From a token to the next one of its answer.", seconds},
      {"situ_queue_seconds", "From a request to the first step that takes part of it.", seconds},
      {"situ_request_seconds", "From a request to the end of its answer.", seconds},
      {"situ_prompt_length_tokens", "Tokens of prompts.", tokens},
      {"situ_answer_length_tokens", "Tokens of answers.", tokens},
  }};
  return entries[static_cast<size_t>(series)];
}

std::string sample(double value) {
  char text[40];  // the shortest that is read back as it was
  return {text, std::to_chars(text, text + sizeof(text), value).ptr};
}

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\' || c == '"') out += '\\';
    out += c == '\n' ? "\\n" : std::string(1, c);
  }
  return out;
}

std::string head_of(const std::string& name, const char* type, const char* help) {
  return "# HELP " + name + " " + help + "\n# TYPE " + name + " " + type + "\n";
}

}  // namespace

std::string Metrics::model_label(const std::string& model) { return "{model=\"" + escaped(model) + "\"}"; }

void Metrics::count(const std::string& model, const std::string& route, int status) {
  const std::string labels =
      "{model=\"" + escaped(model) + "\",route=\"" + escaped(route) + "\",status=\"" + std::to_string(status) + "\"}";
  const std::lock_guard held(mutex_);
  ++requests_[labels];
}

void Metrics::observe(Series series, const std::string& model, double value) {
  const std::vector<double>& bounds = entry_of(series).bounds;
  const std::lock_guard held(mutex_);
  Histogram& h = histograms_[series][model];
  h.buckets.resize(bounds.size());
  for (size_t i = 0; i < bounds.size(); ++i) h.buckets[i] += value <= bounds[i];
  ++h.count;
  h.sum += value;
}

std::string Metrics::text() const {
  const std::lock_guard held(mutex_);
  std::string text = head_of("situ_requests_total", "counter", "Requests that were answered.");
  for (const auto& [labels, count] : requests_)
    text += "situ_requests_total" + labels + " " + std::to_string(count) + "\n";
  for (int series = 0; series < kSeries; ++series) {
    const SeriesEntry& entry = entry_of(series);
    text += head_of(entry.name, "histogram", entry.help);
    for (const auto& [model, h] : histograms_[series]) {
      const std::string label = "model=\"" + escaped(model) + "\"";
      const auto bucket = [&](const std::string& bound, uint64_t count) {
        text += std::string(entry.name) + "_bucket{" + label + ",le=\"" + bound + "\"} " + std::to_string(count) + "\n";
      };
      for (size_t i = 0; i < entry.bounds.size(); ++i) bucket(sample(entry.bounds[i]), h.buckets[i]);
      bucket("+Inf", h.count);
      text += std::string(entry.name) + "_sum{" + label + "} " + sample(h.sum) + "\n";
      text += std::string(entry.name) + "_count{" + label + "} " + std::to_string(h.count) + "\n";
    }
  }
  return text;
}

std::string Metrics::family(const std::string& name, const char* type, const char* help,
                            const std::vector<std::pair<std::string, double>>& values) {
  std::string text = head_of(name, type, help);
  for (const auto& [labels, value] : values) text += name + labels + " " + sample(value) + "\n";
  return text;
}

std::string Metrics::process() {
  std::ifstream stat("/proc/self/stat");
  std::string line;
  std::getline(stat, line);
  std::istringstream fields(line.substr(std::min(line.size(), line.rfind(')') + 1)));
  std::vector<std::string> all;  // from field 3 on
  for (std::string field; fields >> field;) all.push_back(field);
  const auto at = [&](size_t field) {
    return field - 3 < all.size() ? std::strtod(all[field - 3].c_str(), nullptr) : 0;
  };
  const auto ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
  double boot = 0;
  std::ifstream system("/proc/stat");
  while (std::getline(system, line))
    if (line.starts_with("btime ")) boot = std::strtod(line.c_str() + 6, nullptr);
  std::error_code none;
  double descriptors = 0;
  for (auto it = std::filesystem::directory_iterator("/proc/self/fd", none); !none && it != end(it); it.increment(none))
    ++descriptors;
  const auto one = [](const char* name, const char* type, const char* help, double value) {
    return family(name, type, help, {{"", value}});
  };
  return one("process_cpu_seconds_total", "counter", "Time of processors.", (at(14) + at(15)) / ticks) +
         one("process_resident_memory_bytes", "gauge", "Memory in use, mapped files too.",
             at(24) * static_cast<double>(sysconf(_SC_PAGESIZE))) +
         one("process_virtual_memory_bytes", "gauge", "Address space.", at(23)) +
         one("process_threads", "gauge", "Threads.", at(20)) +
         one("process_start_time_seconds", "gauge", "When it began, since 1970.", boot + at(22) / ticks) +
         one("process_open_fds", "gauge", "Open files.", descriptors) +
         one("process_max_fds", "gauge", "Open files at most.", static_cast<double>(sysconf(_SC_OPEN_MAX)));
}

}  // namespace situ::serve
