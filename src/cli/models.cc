#include "cli/models.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>

#include "cli/closest.h"
#include "cli/hub/name.h"
#include "cli/progress.h"
#include "cli/terminal.h"
#include "situ/speech.h"

namespace situ::cli {
namespace {

std::string megabytes(double bytes) {
  char text[32];
  std::snprintf(text, sizeof text, bytes < 1e9 ? "%.1f MB" : "%.2f GB", bytes / (bytes < 1e9 ? 1e6 : 1e9));
  return text;
}

// On a terminal a line that is written over; elsewhere a line every ten seconds.
class DownloadLine {
 public:
  void show(int64_t done, int64_t total) {
    const auto now = std::chrono::steady_clock::now();
    if (begin_ == std::chrono::steady_clock::time_point()) begin_ = last_ = now, first_ = done;
    const bool over = terminal_ && done >= total;
    if (!over && now - last_ < (terminal_ ? std::chrono::milliseconds(200) : std::chrono::milliseconds(10000))) return;
    last_ = now;
    const double seconds = std::chrono::duration<double>(now - begin_).count(),
                 rate = seconds > 0 ? static_cast<double>(done - first_) / seconds : 0;
    std::string text = megabytes(static_cast<double>(done)) + " of " + megabytes(static_cast<double>(total));
    if (rate > 0) {
      text += ", " + megabytes(rate) + "/s";
      if (done < total)
        text += ", " + std::to_string(static_cast<int64_t>(static_cast<double>(total - done) / rate) + 1) + " s left";
    }
    if (terminal_)
      std::fprintf(stderr, "\r\033[K%s%s", over ? "" : text.c_str(), over ? "" : " ");
    else
      std::fprintf(stderr, "situ: %s\n", text.c_str());
    std::fflush(stderr);
  }

 private:
  const bool terminal_ = isatty(STDERR_FILENO) != 0;
  std::chrono::steady_clock::time_point begin_, last_;
  int64_t first_ = 0;
};

}  // namespace

void add_offline_option(CLI::App& command, const std::string& group) {
  command
      .add_flag_callback(
          "--offline", [] { setenv("HF_HUB_OFFLINE", "1", 1); }, "Ask no hub: a model by name has to be in the cache")
      ->group(group);
}

PullOptions shown_pull(bool ask) {
  PullOptions options;
  options.ask = ask;
  options.note = [](const std::string& line) { std::fprintf(stderr, "situ: %s\n", one_line(line).c_str()); };
  options.progress = [line = std::make_shared<DownloadLine>()](int64_t done, int64_t total) {
    line->show(done, total);
    return true;
  };
  return options;
}

// "; did you mean the model 'smollm2' (situ list --names)?", or "".
static std::string meant_model(const std::string& typed) {
  std::vector<std::string> names;
  for (const hub::ShortName& n : hub::short_names()) names.push_back(n.name);
  const std::string meant = closest(typed, names);
  return meant.empty() ? "" : "; did you mean the model '" + meant + "' (situ list --names)?";
}

int fail_pull(const Status& status, const std::string& typed, const char* command) {
  const bool outside = status.code() == Code::kInternal || status.code() == Code::kNoRoom;
  fail(status.message() + (status.code() == Code::kNotFound ? meant_model(typed) : ""), kFailed);
  for (const Reason& r : status.reasons())
    if (!r.advice.empty()) std::fprintf(stderr, "  situ %s %s\n", command, shell_word(r.advice).c_str());
  return outside ? kFailed : kRefused;
}

static int find_one(std::string& model, std::vector<std::string>& variants, const char* command) {
  PullOptions options = shown_pull(false);
  options.variants = variants;
  Result<Pulled> found = situ::pull(model, options);
  if (found.is_ok()) {
    model = found->path;
    variants = found->variants;
    return kDone;
  }
  if (found.status().code() != Code::kNotFound) return fail_pull(found.status(), model, command);
  if (const std::string meant = meant_model(model); !meant.empty())
    return fail(model + ": no such file or folder" + meant);
  return kDone;  // loading says what is wrong with a path
}

int find_model(LoadArguments& a, const char* command) {
  std::vector<std::string> none;
  std::error_code unknown;  // a draft that cannot be is told before the model is fetched
  if (const std::string& draft = a.load.draft; !draft.empty() && !std::filesystem::exists(draft, unknown)) {
    const Result<std::optional<hub::ModelName>> name = hub::parse_name(draft);
    if (!name.is_ok()) return fail(name.status().message());
    if (!*name) return fail("the draft: '" + draft + "': no such file or folder");
  }
  if (const int code = find_one(a.model, a.load.variants, command); code != kDone || a.load.draft.empty()) return code;
  return find_one(a.load.draft, none, command);
}

std::optional<Model> load_model(const LoadArguments& a, int* code) {
  Waiting waiting(loading_line(a.model));
  Result<Model> model = Model::load(a.model, a.load);
  waiting.stop();
  if (model.is_ok()) {
    constexpr int64_t kSaved = int64_t{16} << 20;  // bytes from which on packed weights are saved
    const int64_t packed = model->facts().packed_bytes;
    if (packed >= kSaved && a.load.pack_cache && isatty(STDERR_FILENO))
      std::fprintf(stderr, "situ: packed %s of weights for this processor; later loads map them\n",
                   size_text(static_cast<double>(packed)).c_str());
    return std::move(*model);
  }
  *code = fail_load(model.status(), a.load.memory > 0 || a.load.slots > 0 || a.load.context_length > 0);
  return std::nullopt;
}

Use use_of(const Model& model) {
  if (!model.generates()) return model.scores_pairs() ? Use::kPairs : Use::kEmbeddings;
  if (!model.has_encoder()) return Use::kText;
  return SpeechModel::of(model).is_ok() ? Use::kSpeech : Use::kEncoderDecoder;
}

std::string use_text(Use use, const std::string& model) {
  switch (use) {
    case Use::kText:
      return "a language model: situ run " + model + " \"PROMPT\"";
    case Use::kEncoderDecoder:
      return "an encoder-decoder: situ run " + model + " \"TEXT\", or --encoder-input NAME=FILE.npy";
    case Use::kSpeech:
      return "a speech model: situ transcribe " + model + " FILE";
    case Use::kEmbeddings:
      return "a model of embeddings: situ embed " + model + " \"TEXT\"";
    case Use::kPairs:
      return "a model that scores pairs: situ embed " + model + " \"TEXT\" --pair \"OTHER\"";
  }
  return "";
}

int check_use(const Model& model, const std::string& name, std::initializer_list<Use> uses) {
  const Use use = use_of(model);
  if (std::find(uses.begin(), uses.end(), use) != uses.end()) return kDone;
  // What the graph lacks, which any call that wants logits says.
  const Status lacks = model.generates() ? Status::error(name) : model.perplexity({}, {}).status();
  return fail(lacks.message() + ": this is " + use_text(use, name));
}

}  // namespace situ::cli
