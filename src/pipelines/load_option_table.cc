// The options of loading a model, once for the command line, Python and docs/commands.md.
#include "situ/load_options.h"

namespace situ {

std::span<const LoadOption> load_option_table() {
  constexpr int64_t kMostTokens = int64_t{1} << 24, kMostSlots = int64_t{1} << 30, kMostChunk = int64_t{1} << 20;
  using O = LoadOptions;
  static const LoadOption table[] = {
      {"threads", "--threads", "N", "Threads that compute", "one for each usable CPU", 1, Runtime::kMostThreads, true,
       &O::threads},
      {"naive", "--naive", "", "Run the graph literally: past in, present out, Concat copies", "", 0, 0, false,
       &O::naive},
      {"context_length", "--context", "N", "Most tokens of a sequence", "the model's, else 4096", 1, kMostTokens, true,
       &O::context_length},
      {"memory", "--memory", "SIZE", "Budget for weights, activations and KV cache: 2GiB",
       "the cache may take half of what is free", 1, INT64_MAX, true, &O::memory},
      {"slots", "--slots", "N", "Tokens of KV cache, exactly so many", "what --memory leaves", 1, kMostSlots, false,
       &O::slots},
      {"chunk", "--chunk", "N", "Most prompt tokens of one step", "512", 1, kMostChunk, false, &O::chunk},
      {"window", "--window", "N", "Attend to the last N tokens; a sequence then has no end", "all tokens", 1,
       kMostTokens, false, &O::window},
      {"sink", "--sink", "N", "Beside --window: attend to the first N tokens too", "0", 0, kMostChunk, false, &O::sink},
      {"kv_type", "--kv-type", "auto|f32|f16|bf16|q8", "Element type of the KV cache", "auto", 0, 0, false,
       &O::kv_type},
      {"draft", "--draft", "MODEL", "Smaller model with the same tokens, for speculative decoding", "none", 0, 0, false,
       &O::draft},
      {"variants", "--variant", "VARIANT", "Precision of the graphs: q4, fp16, ...; or GRAPH=VARIANT (repeatable)",
       "the file without a suffix, else the only one", 0, 0, true, &O::variants},
      {"pack_cache", "--no-pack-cache", "", "Neither use nor save packed weights", "", 0, 0, false, &O::pack_cache},
  };
  return table;
}

}  // namespace situ
