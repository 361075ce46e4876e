// `situ perplexity`: how well a model foretells a text file.
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/models.h"
#include "cli/terminal.h"

namespace situ::cli {

int perplexity(const PerplexityArguments& a) {
  const Result<std::string> text = read_file(a.file, true);
  if (!text.is_ok()) return fail(text.status().message());
  if (text->empty()) return fail(a.file + ": has 0 tokens; at least 2 are needed");
  if (const Status good = check_utf8(*text, a.file); !good.is_ok()) return fail(good.message());
  LoadOptions load;
  if (const Status made = load_options(a, &load); !made.is_ok()) return fail(made.message());
  std::string path = a.model;
  if (const int code = find_model(path, load, "perplexity"); code != kDone) return code;
  Result<Model> model = Model::load(path, load);
  if (!model.is_ok()) return fail(model.status().message());
  const Result<std::vector<int64_t>> tokens = model->tokenizer().encode(*text);
  if (!tokens.is_ok()) return fail(a.file + ": " + tokens.status().message());
  if (tokens->size() < 2)
    return fail(a.file + ": has " + std::to_string(tokens->size()) +
                " tokens; at least 2 are needed, since the first has nothing before it");
  const Result<Perplexity> p = model->perplexity(*tokens, {.stride = a.stride});
  if (!p.is_ok()) return fail(p.status().message());
  const double rate = 1000.0 * static_cast<double>(p->tokens) / p->ms;
  if (!a.json) {
    std::printf("perplexity %.6g (%lld tokens, mean negative log-likelihood %.6g; %.0f tokens/s, copied %lld B)\n",
                p->value(), static_cast<long long>(p->tokens), p->mean_nll, rate,
                static_cast<long long>(p->bytes_copied));
    return 0;
  }
  if (!std::isfinite(p->value()))
    std::fprintf(
        stderr, "situ: note: %s: %s: infinite, which JSON has as null\n", one_line(a.file).c_str(),
        std::isfinite(p->mean_nll) ? "the perplexity is beyond all numbers" : "a token of the text has probability 0");
  const nlohmann::ordered_json j{
      {"perplexity", p->value()},  {"mean_nll", p->mean_nll},         {"tokens", p->tokens},
      {"tokens_per_second", rate}, {"bytes_copied", p->bytes_copied}, {"peak_rss_mib", peak_rss_mib()}};
  std::printf("%s\n", j.dump().c_str());
  return 0;
}

}  // namespace situ::cli
