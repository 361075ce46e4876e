// A line on a terminal while something takes long.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "situ/model.h"

namespace situ::cli {

// Shows `line()` on standard error from a third of a second on, and again when it has changed, until it is stopped;
// nothing where standard error is no terminal. `line` is called by a thread of its own.
class Waiting {
 public:
  explicit Waiting(std::function<std::string()> line);
  ~Waiting() { stop(); }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;
  // Clears the line.
  void stop();

 private:
  void show();

  std::function<std::string()> line_;
  std::mutex mutex_;
  std::condition_variable ended_;
  bool over_ = false;
  std::thread shower_;
};

// "loading MODEL: 412.0 MiB in memory, 3 s"
std::function<std::string()> loading_line(const std::string& model);

// "reading the prompt: 1536 of 4096 tokens"
std::function<std::string()> prompt_line(const Model& model, int64_t tokens);

}  // namespace situ::cli
