// `situ embed`: embeddings of texts, and scores of pairs of texts.
#include <CLI/CLI.hpp>
#include <charconv>
#include <chrono>
#include <cstdio>

#include "cli/commands.h"
#include "cli/models.h"
#include "cli/repeated.h"

namespace situ::cli {
namespace {

constexpr size_t kShownNumbers = 8;

// The shortest text that reads as the same float.
void add_number(float number, std::string* text) {
  char digits[32];
  const auto [end, error] = std::to_chars(digits, digits + sizeof digits, number);
  text->append(digits, end);
}

template <typename T, typename Add>
std::string list_of(const std::vector<T>& values, Add add) {
  std::string text = "[";
  for (size_t i = 0; i < values.size(); ++i) {
    if (i > 0) text += ", ";
    add(values[i], &text);
  }
  return text + "]";
}
std::string list_of(const std::vector<float>& numbers) { return list_of(numbers, add_number); }
std::string list_of(const std::vector<int64_t>& numbers) {
  return list_of(numbers, [](int64_t n, std::string* text) { *text += std::to_string(n); });
}
std::string list_of(const std::vector<std::vector<float>>& rows) {
  return list_of(rows, [](const std::vector<float>& row, std::string* text) { *text += list_of(row); });
}

Result<std::vector<std::string>> lines_of(const std::string& file) {
  const Result<std::string> text = read_file(file, true);
  if (!text.is_ok()) return text.status();
  SITU_RETURN_IF_ERROR(check_utf8(*text, file == kStandard ? "standard input" : file));
  std::vector<std::string> lines;
  for (size_t at = 0; at < text->size();) {
    const size_t end = std::min(text->find('\n', at), text->size());
    lines.push_back(text->substr(at, end - at));
    if (lines.back().ends_with('\r')) lines.back().pop_back();
    at = end + 1;
  }
  if (lines.empty()) return Status::error((file == kStandard ? "standard input" : file) + ": has no line, and no text");
  return lines;
}

void print_notes(const std::vector<std::string>& notes) {
  for (const std::string& note : notes) std::fprintf(stderr, "situ: note: %s\n", note.c_str());
}

// `ms`: of each repetition, empty where none was asked for.
void print(const Embeddings& e, const std::vector<float>& ms, bool json) {
  print_notes(e.notes);
  if (json) {
    const std::string times = ms.empty() ? "" : ", \"ms\": " + list_of(ms);
    std::printf("{\"embeddings\": %s, \"dims\": %lld, \"tokens\": %s%s}\n", list_of(e.rows).c_str(),
                static_cast<long long>(e.dims), list_of(e.tokens).c_str(), times.c_str());
    return;
  }
  for (const float t : ms)
    std::printf("%.1f ms, %.1f texts a second\n", static_cast<double>(t),
                1000.0 * static_cast<double>(e.rows.size()) / static_cast<double>(t));
  for (size_t i = 0; i < e.rows.size(); ++i) {
    const std::vector<float>& row = e.rows[i];
    for (size_t k = 0; k < std::min(row.size(), kShownNumbers); ++k) std::printf("%9.5f ", static_cast<double>(row[k]));
    std::printf("%s(%zu numbers, %lld tokens)\n", row.size() > kShownNumbers ? "... " : "", row.size(),
                static_cast<long long>(e.tokens[i]));
  }
}

void print(const PairScores& s, const std::vector<std::string>& texts, bool json) {
  print_notes(s.notes);
  if (json) {
    std::vector<float> single;
    for (const std::vector<float>& row : s.rows) single.push_back(row[0]);
    std::printf("{\"scores\": %s, \"labels\": %lld, \"tokens\": %s}\n",
                s.labels == 1 ? list_of(single).c_str() : list_of(s.rows).c_str(), static_cast<long long>(s.labels),
                list_of(s.tokens).c_str());
    return;
  }
  for (size_t i = 0; i < s.rows.size(); ++i) {
    for (const float score : s.rows[i]) std::printf("%9.5f ", static_cast<double>(score));
    std::printf(" %s\n", texts[i].c_str());
  }
}

}  // namespace

void add_embed_options(CLI::App& command, EmbedArguments& a) {
  command.add_option("model", a.model, "Model folder")->required();
  CLI::Option* texts = many(command.add_option("text", a.texts, "Texts, one embedding each"));
  command.add_option("-f,--file", a.file, "A file with one text a line; -: standard input")->excludes(texts);
  CLI::Option* pair =
      command.add_option("--pair", a.pair, "Of a cross-encoder: the second text of each pair; scores, not embeddings")
          ->type_name("TEXT");
  CLI::Option* prompt = command.add_option(
      "--prompt", a.prompt, "In front of every text, of a pair the first (default: what the folder names)");
  command.add_option("--prompt-name", a.prompt_name, "One of the prompts in config_sentence_transformers.json")
      ->excludes(prompt);
  command.add_option("--dimensions", a.dimensions, "Numbers of an embedding, the first ones (default: all)")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20))
      ->excludes(pair);
  command.add_option("--threads", a.threads, "Threads (default: one per usable CPU)")
      ->check(CLI::Range(1, int{situ::Runtime::kMostThreads}));
  command.add_option("--context", a.context, "Most tokens of a text (default: the model's)")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 24));
  command.add_option("--reps", a.reps, "Embed the texts so many times, and say how long each took")
      ->check(CLI::Range(1, 1000))
      ->excludes(pair);
  command.add_flag("--json", a.json, "Print one JSON object");
}

int embed(const EmbedArguments& a) {
  std::vector<std::string> texts = a.texts;
  if (!a.file.empty()) {
    Result<std::vector<std::string>> lines = lines_of(a.file);
    if (!lines.is_ok()) return fail(lines.status().message());
    texts = std::move(*lines);
  }
  if (texts.empty()) return fail("no text is given: TEXT or -f FILE");
  for (size_t i = 0; i < texts.size(); ++i)
    if (const Status good = check_utf8(texts[i], "text " + std::to_string(i + 1)); !good.is_ok())
      return fail(good.message());
  LoadOptions load;
  if (const Status made = load_options(a, &load); !made.is_ok()) return fail(made.message());
  std::string path = a.model;
  if (const int code = find_model(path, load, "embed"); code != kDone) return code;
  Result<Model> model = Model::load(path, load);
  if (!model.is_ok()) return fail(model.status().message());
  if (!a.pair) {
    std::vector<float> ms;
    for (int rep = 1;; ++rep) {
      const auto start = std::chrono::steady_clock::now();
      const Result<Embeddings> made = model->embed(texts, {a.prompt, a.prompt_name, a.dimensions});
      if (!made.is_ok()) return fail(made.status().message());
      if (a.reps > 0)
        ms.push_back(std::chrono::duration<float, std::milli>(std::chrono::steady_clock::now() - start).count());
      if (rep < a.reps) continue;
      print(*made, ms, a.json);
      return kDone;
    }
  }
  std::vector<TextPair> pairs;
  for (const std::string& text : texts) pairs.push_back({text, *a.pair});
  const Result<PairScores> scores = model->score(pairs, {a.prompt, a.prompt_name});
  if (!scores.is_ok()) return fail(scores.status().message());
  print(*scores, texts, a.json);
  return kDone;
}

}  // namespace situ::cli
