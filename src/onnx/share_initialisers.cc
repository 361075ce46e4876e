#include "onnx/share_initialisers.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <map>
#include <set>
#include <tuple>

namespace situ {
namespace {

constexpr int64_t kLeastBytes = 64 << 10;  // smaller ones are not worth a comparison
constexpr int64_t kPiece = 4 << 20;        // compared at once, so that memory never holds two whole matrices

// Whole pages in [from, from + bytes) are read from their file again when somebody needs them. Heap memory would lose
// what it holds: only for constants of mapped files.
void give_back(const std::byte* from, int64_t bytes) {
  const uintptr_t page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE)), begin = reinterpret_cast<uintptr_t>(from),
                  first = (begin + page - 1) / page * page,
                  last = (begin + static_cast<uintptr_t>(bytes)) / page * page;
  if (first < last) madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
}

bool equal(const Tensor& a, const Tensor& b, bool mapped) {
  const std::byte *x = a.view().data, *y = b.view().data;
  const int64_t bytes = a.bytes();
  constexpr int64_t kLine = 64;
  for (const int64_t at : {int64_t{0}, bytes / 3, bytes / 2, bytes - kLine})
    if (std::memcmp(x + at, y + at, kLine) != 0) return false;
  bool same = true;
  for (int64_t at = 0; at < bytes && same; at += kPiece) {
    const int64_t piece = std::min(kPiece, bytes - at);
    same = std::memcmp(x + at, y + at, static_cast<size_t>(piece)) == 0;
    if (!mapped) continue;
    give_back(x + at, piece);
    give_back(y + at, piece);
  }
  return same;
}

class Sharer {
 public:
  void add_files(const ImportedModel& model) {
    for (const auto& file : model.files) files_.insert(file.get());
  }
  void graph(Graph& g) {
    for (Value& v : g.values) constant(v.constant);
    for (Node& n : g.nodes)
      for (auto& [key, a] : n.attrs)
        if (a.graph) graph(*a.graph);
  }
  int64_t shared() const { return shared_; }

 private:
  void constant(Tensor& t) {
    if (!t.present() || !t.contiguous() || t.bytes() < kLeastBytes) return;
    std::vector<Tensor>& known = known_[{t.type(), t.dims()}];
    for (const Tensor& other : known) {
      if (other.view().data == t.view().data) return;
      if (!equal(other, t, files_.count(other.owner().get()) != 0 && files_.count(t.owner().get()) != 0)) continue;
      shared_ += t.bytes();
      t = other;
      return;
    }
    known.push_back(t);
  }

  std::map<std::tuple<DType, std::vector<int64_t>>, std::vector<Tensor>> known_;
  std::set<const void*> files_;  // owners of what lies in a file
  int64_t shared_ = 0;
};

// "model.decoder.layers.0.fc1.weight": a dotted path whose last part is a word.
bool names_parameter(const std::string& name) {
  const size_t dot = name.rfind('.');
  if (dot == std::string::npos || dot == 0 || dot + 1 == name.size()) return false;
  const auto word = [](unsigned char c) { return std::isalnum(c) || c == '_' || c == '.'; };
  if (!std::all_of(name.begin(), name.end(), word) || !std::isalpha(static_cast<unsigned char>(name[0]))) return false;
  const std::string last = name.substr(dot + 1);
  for (const char* made : {"_quantized", "_scale", "_zero_point"})
    if (last.find(made) != std::string::npos) return false;
  const size_t number = last.find_last_not_of("0123456789");
  return number != std::string::npos && (number + 1 == last.size() || last[number] != '_');
}

}  // namespace

int64_t share_initialisers(const std::vector<ImportedModel*>& models) {
  if (models.size() < 2) return 0;
  Sharer sharer;
  for (const ImportedModel* m : models) sharer.add_files(*m);
  for (ImportedModel* m : models) sharer.graph(m->graph);
  return sharer.shared();
}

std::string different_parameter(const ImportedModel& a, const ImportedModel& b) {
  std::map<std::string, const Tensor*> known;
  for (const Value& v : a.graph.values)
    if (v.constant.present() && names_parameter(v.name)) known[v.name] = &v.constant;
  for (const Value& v : b.graph.values) {
    if (!v.constant.present()) continue;
    const auto at = known.find(v.name);
    if (at == known.end()) continue;
    const Tensor &x = *at->second, &y = v.constant;
    if (x.type() != y.type() || x.dims() != y.dims() || !x.contiguous() || !y.contiguous() ||
        x.view().data == y.view().data)
      continue;
    // Large ones that are equal were made one.
    const size_t bytes = static_cast<size_t>(x.bytes());
    if (x.bytes() >= kLeastBytes || std::memcmp(x.view().data, y.view().data, bytes) != 0) return v.name;
  }
  return "";
}

}  // namespace situ
