// generate MODEL TEXT      a model with a tokenizer
// generate MODEL 1,2,3     token ids, for any model
// Streams 16 tokens, makes the same ids again step by step from the logits, and prints the ledger.
#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "situ/model.h"

using Ids = std::vector<int64_t>;

// "1,2,3" -> ids; nothing if the text is not of that form.
static Ids parse_ids(const char* text) {
  Ids ids;
  while (true) {
    char* end = nullptr;
    ids.push_back(std::strtoll(text, &end, 10));
    if (end == text || (*end != ',' && *end != '\0')) return {};
    if (*end == '\0') return ids;
    text = end + 1;
  }
}

static int fail(const situ::Status& status) {
  std::fprintf(stderr, "generate: %s\n", status.message().c_str());
  return 2;
}

int main(int argc, char** argv) {
  if (argc != 3) return fail(situ::Status::error("usage: generate MODEL TEXT|1,2,3"));
  situ::Result<situ::Model> model = situ::Model::load(argv[1], {});
  if (!model.is_ok()) return fail(model.status());
  Ids prompt = parse_ids(argv[2]);
  if (prompt.empty()) {
    situ::Result<Ids> encoded = model->tokenizer().encode(argv[2]);
    if (!encoded.is_ok()) return fail(encoded.status());
    prompt = *encoded;
  }

  // All at once: the callback sees every token as it is chosen. The id is -1 when only text is left over.
  situ::GenerateOptions options;
  options.max_new_tokens = 16;
  options.ignore_eos = true;
  const bool text = model->tokenizer().is_there();
  situ::Result<situ::Generation> all = model->generate(prompt, options, [&](const situ::Event& event) {
    if (text)
      std::printf("%s", event.text.c_str());
    else
      std::printf("%lld ", static_cast<long long>(event.id));
    std::fflush(stdout);
    return true;  // false would stop here
  });
  if (!all.is_ok()) return fail(all.status());

  // Step by step: feed tokens, read the logits [vocabulary] after the last one, choose.
  model->reset_ledger();
  situ::Result<situ::Session> session = model->new_session();
  if (!session.is_ok()) return fail(session.status());
  Ids ids, next = prompt;
  while (ids.size() < all->output_ids.size()) {
    situ::Result<std::span<const float>> logits = session->step(next);
    if (!logits.is_ok()) return fail(logits.status());
    next = {std::max_element(logits->begin(), logits->end()) - logits->begin()};
    ids.push_back(next[0]);
  }

  const situ::LedgerReading ledger = model->ledger();
  std::printf("\n%zu tokens, step by step: %s\n", ids.size(), ids == all->output_ids ? "the same" : "different");
  std::printf("computed %lld B, copied %lld B, packed %lld B\n", static_cast<long long>(ledger.computed),
              static_cast<long long>(ledger.copied), static_cast<long long>(ledger.packed));
  return ids == all->output_ids ? 0 : 1;
}
