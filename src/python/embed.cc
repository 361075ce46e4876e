#include "python/embed.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "python/attended.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace situ::python {
namespace {

using Rows = nb::ndarray<nb::numpy, float, nb::ndim<2>>;

// Rows of `width` numbers as one array, and the notes.
nb::tuple rows_and_notes(const std::vector<std::vector<float>>& rows, int64_t width,
                         const std::vector<std::string>& notes) {
  auto* values = new std::vector<float>();
  const nb::capsule owner(values, [](void* p) noexcept { delete static_cast<std::vector<float>*>(p); });
  for (const std::vector<float>& row : rows) values->insert(values->end(), row.begin(), row.end());
  return nb::make_tuple(Rows(values->data(), {rows.size(), static_cast<size_t>(width)}, owner), notes);
}

nb::tuple embed(ModelHandle& self, const std::vector<std::string>& texts, const std::optional<std::string>& prompt,
                const std::optional<std::string>& prompt_name, std::optional<int64_t> dimensions) {
  const EmbedOptions options{prompt, prompt_name, dimensions};
  const Embeddings e = value_or_raise(attended(self, [&](Model& m) { return m.embed(texts, options); }));
  return rows_and_notes(e.rows, e.dims, e.notes);
}

nb::tuple embed_ids(ModelHandle& self, const std::vector<std::vector<int64_t>>& ids,
                    std::optional<int64_t> dimensions) {
  const EmbedOptions options{{}, {}, dimensions};
  const Embeddings e = value_or_raise(attended(self, [&](Model& m) { return m.embed(ids, options); }));
  return rows_and_notes(e.rows, e.dims, e.notes);
}

nb::tuple score(ModelHandle& self, const std::vector<std::pair<std::string, std::string>>& texts,
                const std::optional<std::string>& prompt, const std::optional<std::string>& prompt_name) {
  const EmbedOptions options{prompt, prompt_name};
  std::vector<TextPair> pairs;
  for (const auto& [first, second] : texts) pairs.push_back({first, second});
  const PairScores s = value_or_raise(attended(self, [&](Model& m) { return m.score(pairs, options); }));
  return rows_and_notes(s.rows, s.labels, s.notes);
}

}  // namespace

void bind_embed(nb::class_<ModelHandle>& model) {
  model
      .def("embed", &embed, "texts"_a, "prompt"_a = nb::none(), "prompt_name"_a = nb::none(),
           "dimensions"_a = nb::none(),
           nb::sig("def embed(self, texts: Sequence[str], prompt: str | None = None, prompt_name: str | None = None, "
                   "dimensions: int | None = None) -> tuple[numpy.typing.NDArray[numpy.float32], list[str]]"))
      .def("embed_ids", &embed_ids, "ids"_a, "dimensions"_a = nb::none(),
           nb::sig("def embed_ids(self, ids: Sequence[Sequence[int]], dimensions: int | None = None) -> "
                   "tuple[numpy.typing.NDArray[numpy.float32], list[str]]"))
      .def("score", &score, "pairs"_a, "prompt"_a = nb::none(), "prompt_name"_a = nb::none(),
           nb::sig("def score(self, pairs: Sequence[tuple[str, str]], prompt: str | None = None, "
                   "prompt_name: str | None = None) -> "
                   "tuple[numpy.typing.NDArray[numpy.float32], list[str]]"));
}

}  // namespace situ::python
