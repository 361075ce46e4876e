// Counters and histograms, as Prometheus reads them.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace situ::serve {

// Any thread.
class Metrics {
 public:
  enum Series { kFirstToken, kInterToken, kQueue, kRequest, kPromptLength, kAnswerLength, kSeries };

  void count(const std::string& model, const std::string& route, int status);
  void observe(Series series, const std::string& model, double value);
  // What was counted and observed so far.
  std::string text() const;

  // One family of values that are known when they are asked for: `# TYPE` and a line for each label.
  static std::string family(const std::string& name, const char* type, const char* help,
                            const std::vector<std::pair<std::string, double>>& values);
  // "{model=\"NAME\"}"
  static std::string model_label(const std::string& model);
  // process_*: of this process, from /proc.
  static std::string process();

 private:
  struct Histogram {
    std::vector<uint64_t> buckets;
    uint64_t count = 0;
    double sum = 0;
  };
  mutable std::mutex mutex_;
  std::map<std::string, uint64_t> requests_;              // by their labels
  std::map<std::string, Histogram> histograms_[kSeries];  // by model
};

}  // namespace situ::serve
