#include "passes/pack/pack_cache.h"

#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>

#include "passes/pack/pack_header.h"

namespace situ {
namespace {

namespace fs = std::filesystem;

constexpr const char* kExtension = ".situpack";

// The end of this version's file names: versions that share a folder do not write over each other's files.
std::string name_end() { return "-f" + std::to_string(kPackFormat) + "l" + std::to_string(kPackLayout) + kExtension; }

std::string hex(uint64_t number) {
  char text[17];
  std::snprintf(text, sizeof(text), "%016llx", static_cast<unsigned long long>(number));
  return text;
}

// Made where it is missing, for this user alone.
bool make_folder(const fs::path& folder) {
  std::error_code error;
  if (fs::is_directory(folder, error)) return true;
  if (folder.has_parent_path() && folder.parent_path() != folder && !make_folder(folder.parent_path())) return false;
  return ::mkdir(folder.c_str(), 0700) == 0 || fs::is_directory(folder, error);
}

}  // namespace

fs::path pack_cache_folder() {
  if (const char* own = std::getenv("SITU_CACHE_DIR")) return own;
  auto absolute = [](const char* name) {
    const char* value = std::getenv(name);
    return value && value[0] == '/' ? fs::path(value) : fs::path();
  };
  if (const fs::path all = absolute("XDG_CACHE_HOME"); !all.empty()) return all / "situ";
  const fs::path home = absolute("HOME");
  return home.empty() ? home : home / ".cache" / "situ";
}

std::string PackSave::operator()() {
  // A file that may not grow further is a problem to report, not the end of the program.
  sigset_t too_large, before;
  sigemptyset(&too_large);
  sigaddset(&too_large, SIGXFSZ);
  pthread_sigmask(SIG_BLOCK, &too_large, &before);
  std::string problem = caught();
  timespec now{};
  sigtimedwait(&too_large, nullptr, &now);  // takes what is pending, before it may be delivered
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return problem;
}

std::string PackSave::caught() {
  try {
    return write();
  } catch (const std::exception& e) {  // no memory
    return e.what();
  }
}

std::string PackSave::write() {
  if (refresh_) return refresh_->refresh(sources_) ? "" : "cannot write " + refresh_->path().string();
  if (!make_folder(path_.parent_path())) return "cannot make " + path_.parent_path().string();
  const std::string problem = write_pack_file(path_, secret_, sources_, std::move(records_));
  for (const fs::path& old : superseded_)
    if (std::error_code error; problem.empty() && old != path_) fs::remove(old, error);
  return problem.empty() ? "" : path_.string() + ": " + problem;
}

PackCache::PackCache(ThreadPool& pool, std::vector<PackSource> sources, PackCacheOptions options)
    : pool_(pool), sources_(std::move(sources)), options_(std::move(options)), opened_ns_(file_clock_ns()) {
  int64_t largest = 0, total = 0;
  for (const PackSource& s : sources_) {
    largest = std::max(largest, s.identity.size);
    total += s.identity.size;
  }
  prefix_ = hex(checksum(&largest, sizeof(largest))) + "-";
  if (total < options_.least_bytes || sources_.empty()) options_.folder.clear();
}

SourceRange PackCache::place(const Tensor& t) const {
  SourceRange r;
  r.bytes = t.bytes();
  for (size_t i = 0; i < sources_.size(); ++i) {
    if (sources_[i].owner != t.owner().get()) continue;
    r.file = static_cast<int64_t>(i);
    r.offset = t.view().data - sources_[i].data;
  }
  return r;
}

PackCache::Wanted PackCache::wanted(const PackOperands& o) const {
  const StoredMatrix& m = o.matrix;
  Wanted w{{}, {&m.digits.data, &m.scales.data}};
  if (has_zeros(m.form.zeros)) w.operands.push_back(&m.zeros.data);
  PackRequest& r = w.request;
  for (size_t i = 0; i < w.operands.size(); ++i) r.operands[i] = place(*w.operands[i]);
  r.n = m.form.n;
  r.k = m.form.k;
  r.bits = m.form.bits;
  r.block = m.form.block;
  r.zeros = static_cast<int16_t>(m.form.zeros);
  r.zero_type = m.form.zeros == ZeroPoints::kFloats ? static_cast<int16_t>(m.zeros.data.type()) : int16_t{0};
  r.scale_type = static_cast<int16_t>(m.scales.data.type());
  r.rounded = o.rounded;
  r.order = m.form.high_first;
  return w;
}

PackCache::Wanted PackCache::wanted(const DenseOperands& o) const {
  Wanted w{{}, {&o.weights}};
  w.request.operands[0] = place(o.weights);
  w.request.n = o.n;
  w.request.k = o.k;
  w.request.float_type = static_cast<int32_t>(o.weights.type());
  w.request.order = o.transposed;
  return w;
}

Digest PackCache::digest_of(const Tensor& t, const DigestSecret& secret) {
  return digest(&pool_, secret, t.view().data, t.bytes(), place(t).file != SourceRange::kNoFile);
}

bool PackCache::unchanged(const PackFile& file, size_t source) const {
  return source < file.sources().size() && source < sources_.size() &&
         file.sources()[source].same(sources_[source].identity);
}

const PackEntry* PackCache::right_entry(const PackFile& file, const Wanted& wanted) {
  std::optional<Digest> now[3];
  for (const PackEntry& e : file.entries()) {
    if (!e.request.same_place(wanted.request) || e.bytes != wanted.request.packed_bytes(e.form)) continue;
    bool right = true;
    for (size_t i = 0; i < wanted.operands.size() && right; ++i) {
      const SourceRange& range = e.request.operands[i];
      if (range.file != SourceRange::kNoFile && unchanged(file, static_cast<size_t>(range.file))) continue;
      if (!now[i]) now[i] = digest_of(*wanted.operands[i], file.secret());
      right = *now[i] == range.digest;
    }
    if (right && (file.intact() || digest(&pool_, file.secret(), file.data(e), e.bytes) == e.packed)) return &e;
  }
  return nullptr;
}

// Whether the model, which the saved file is not right for, was written over the one that it was made of. Where nothing
// is known of that one's bytes but where they were, all of its files must have been there: models may share one of
// several.
bool PackCache::written_over(const PackFile& file) const {
  bool all = file.sources().size() == sources_.size();
  for (size_t i = 0; i < std::min(sources_.size(), file.sources().size()); ++i) {
    const FileIdentity& before = file.sources()[i];
    if (!before.same_place(sources_[i].identity))
      all = false;
    else if (!before.is_place() && !unchanged(file, i))
      return true;
  }
  return all &&
         std::any_of(file.sources().begin(), file.sources().end(), [](const FileIdentity& i) { return i.is_place(); });
}

// How many of a few weights that the file was made of are in the model as it is now: which of several fine-tunes it is.
// `kAll` where the identities of all sources say so, without a look at a weight.
size_t PackCache::likeness(const PackFile& file) {
  constexpr size_t kSamples = 16, kAll = kSamples + 2;
  bool all = true;
  for (size_t i = 0; i < sources_.size(); ++i) all &= unchanged(file, i);
  if (all) return kAll;
  size_t alike = 0;
  const size_t count = file.entries().size(), step = std::max<size_t>(1, count / kSamples);
  for (size_t i = count; i > 0; i -= std::min(i, step)) {
    const SourceRange& r = file.entries()[i - 1].request.operands[0];
    if (r.file == SourceRange::kNoFile || r.file >= static_cast<int64_t>(sources_.size())) continue;
    const PackSource& s = sources_[static_cast<size_t>(r.file)];
    if (r.offset > s.identity.size || r.bytes > s.identity.size - r.offset) continue;
    alike += unchanged(file, static_cast<size_t>(r.file)) ||
             digest(&pool_, file.secret(), s.data + r.offset, r.bytes, true) == r.digest;
  }
  return std::min(alike, kAll - 1);
}

// Of the files that may be this model's, the likeliest that has this matrix.
void PackCache::choose(const Wanted& wanted) {
  chosen_ = true;
  std::vector<std::shared_ptr<const PackFile>> candidates;
  std::error_code error;
  for (fs::directory_iterator it(options_.folder, error), end; !error && it != end; it.increment(error)) {
    const fs::path& path = it->path();
    if (path.extension() != kExtension || path.filename().string().rfind(prefix_, 0) != 0) continue;
    if (auto file = PackFile::open(path))
      candidates.push_back(std::move(file));
    else if (is_older_pack_file(path))  // not one that is damaged, is written to, or cannot be opened just now
      superseded_.push_back(path);
  }
  if (candidates.size() > 1) {
    std::map<const PackFile*, size_t> alike;
    for (const auto& file : candidates) alike[file.get()] = likeness(*file);
    std::stable_sort(candidates.begin(), candidates.end(),
                     [&](const auto& a, const auto& b) { return alike[a.get()] > alike[b.get()]; });
  }
  for (const auto& file : candidates) {
    if (!right_entry(*file, wanted)) continue;
    saved_ = file;
    secret_ = file->secret();
    return;
  }
  for (const auto& file : candidates)
    if (written_over(*file)) superseded_.push_back(file->path());
  if (!fill_random(secret_)) options_.folder.clear();
}

const PackEntry* PackCache::find(const Wanted& wanted) {
  if (options_.folder.empty()) return nullptr;
  if (!chosen_) choose(wanted);
  const PackEntry* e = saved_ ? right_entry(*saved_, wanted) : nullptr;
  if (e && used_.insert(e).second) {
    records_.push_back({*e, Tensor::borrow(DType::kU8, {e->bytes}, saved_->data(*e), saved_), true});
    bytes_ += e->bytes;
  }
  return e;
}

std::optional<Packed> PackCache::find(const PackOperands& operands) {
  const PackEntry* e = find(wanted(operands));
  if (!e) return std::nullopt;
  return Packed{Tensor::borrow(DType::kU8, {e->bytes}, saved_->data(*e), saved_), e->form != 0};
}

std::optional<Tensor> PackCache::find(const DenseOperands& operands) {
  const PackEntry* e = find(wanted(operands));
  if (!e) return std::nullopt;
  const DType type = static_cast<DType>(e->form);
  return Tensor::borrow(type, {e->bytes / dtype_bytes(type)}, saved_->data(*e), saved_);
}

void PackCache::add(const Wanted& wanted, const Tensor& packed, int64_t form) {
  if (options_.folder.empty()) return;
  PackRecord r;
  r.entry.request = wanted.request;
  for (size_t i = 0; i < wanted.operands.size(); ++i)
    r.entry.request.operands[i].digest = digest_of(*wanted.operands[i], secret_);
  r.entry.form = form;
  r.packed = packed;
  bytes_ += packed.bytes();
  records_.push_back(std::move(r));
  ++fresh_;
}

std::vector<FileIdentity> PackCache::settled_identities() const {
  std::vector<FileIdentity> list;
  for (const PackSource& s : sources_) {
    const int64_t changed = std::max(s.identity.changed_ns, s.identity.modified_ns);
    list.push_back(opened_ns_ - changed >= options_.settled_ns ? s.identity : s.identity.place());
  }
  return list;
}

// Named by a sample of what it holds: the same for a copy of the model, another for a model of the same shape. What the
// name cannot tell apart only takes turns in one file.
fs::path PackCache::path_of(const std::vector<PackRecord>& records) const {
  constexpr int64_t kSample = 4096;
  uint64_t sum = records.size();
  for (const PackRecord& r : records)
    sum = checksum(r.packed.view().data, static_cast<size_t>(std::min(kSample, r.packed.bytes())), sum);
  return options_.folder / (prefix_ + hex(sum) + name_end());
}

std::optional<PackSave> PackCache::finish() {
  if (options_.folder.empty() || records_.empty() || bytes_ < options_.least_bytes) return std::nullopt;
  for (const PackSource& s : sources_)
    if (!s.identity.same(identity_of(s.path.c_str()))) return std::nullopt;
  PackSave save;
  save.sources_ = settled_identities();
  if (fresh_ == 0) {
    const auto& before = saved_->sources();
    bool current = saved_->intact();
    for (size_t i = 0; i < save.sources_.size(); ++i)
      current &= i < before.size() && (save.sources_[i].is_place() || before[i].same(save.sources_[i]));
    if (current) return std::nullopt;
    // What no one asked for has not been checked, and must not be called right.
    if (used_.size() == saved_->entries().size() && before.size() == save.sources_.size()) {
      save.refresh_ = saved_;
      return save;
    }
  }
  save.path_ = path_of(records_);
  save.secret_ = secret_;
  save.records_ = records_;
  save.superseded_ = superseded_;
  if (fresh_ > 0 && saved_ && written_over(*saved_)) save.superseded_.push_back(saved_->path());
  return save;
}

}  // namespace situ
