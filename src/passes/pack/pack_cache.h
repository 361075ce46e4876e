// Packed weights of one model that outlive the process: which saved file holds them, which of its matrices may be
// believed, and what has to be written so that the next start packs nothing.
//
// A matrix may be taken if the bytes that it was packed from are the same now. That is certain where the file that they
// stand in has the identity that it had then, and is found out by digest where it has not: the folder was copied, the
// file touched or changed. Equal names, sizes and shapes mean nothing.
#pragma once

#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "passes/pack/pack_file.h"
#include "passes/pack/stored_matrix.h"

namespace situ {

// Where packed weights are saved: $SITU_CACHE_DIR (empty: nowhere), else situ below $XDG_CACHE_HOME or $HOME/.cache.
std::filesystem::path pack_cache_folder();

struct PackCacheOptions {
  std::filesystem::path folder;             // empty: nothing is read or saved
  int64_t least_bytes = int64_t{16} << 20;  // of packed weights: fewer are packed again within milliseconds
  // A file that was changed this short a time before it was read may change again without its identity showing it:
  // clocks are coarse, and pages that are dirty in a shared map are written without a trace until they are written
  // back.
  int64_t settled_ns = int64_t{60} * 1000000000;
};

// A file with weights, as it was mapped.
struct PackSource {
  const void* owner = nullptr;  // of the tensors that lie in it
  std::string path;
  const std::byte* data = nullptr;
  FileIdentity identity;
};

struct PackOperands {
  const StoredMatrix& matrix;  // laid out as MatMulNBits has it
  bool rounded = false;        // scales may be rounded to half precision
};
struct Packed {
  Tensor data;
  bool half_scales = false;
};
struct DenseOperands {
  const Tensor& weights;  // [k, n], or [n, k]: transposed
  int64_t k, n;
  bool transposed;
};

// What is left to write once a model is loaded; may run on a thread of its own.
class PackSave {
 public:
  // Empty, or why nothing was saved.
  std::string operator()();

 private:
  friend class PackCache;
  std::string caught();
  std::string write();

  std::filesystem::path path_;
  DigestSecret secret_{};
  std::vector<FileIdentity> sources_;
  std::vector<PackRecord> records_;
  std::vector<std::filesystem::path> superseded_;
  std::shared_ptr<const PackFile> refresh_;  // set: the file is right, only its header is out of date
};

class PackCache {
 public:
  // Order and sizes of `sources` are those of the model; digests are made on `pool`.
  PackCache(ThreadPool& pool, std::vector<PackSource> sources, PackCacheOptions options);

  // The saved matrix, mapped, if there is one and it is right.
  std::optional<Packed> find(const PackOperands& operands);
  std::optional<Tensor> find(const DenseOperands& operands);
  // A matrix that `find` did not have and that has been packed now.
  void add(const PackOperands& operands, const Packed& packed) {
    add(wanted(operands), packed.data, packed.half_scales);
  }
  void add(const DenseOperands& operands, const Tensor& packed) {
    add(wanted(operands), packed, static_cast<int64_t>(packed.type()));
  }
  // After the last matrix. Nothing: all is as it should be, or it is not worth it, or the model changed meanwhile.
  std::optional<PackSave> finish();
  // The file that matrices were taken from; empty: none.
  std::filesystem::path file() const { return used_.empty() ? std::filesystem::path() : saved_->path(); }

 private:
  struct Wanted {
    PackRequest request;
    std::vector<const Tensor*> operands;
  };
  SourceRange place(const Tensor& t) const;
  Wanted wanted(const PackOperands& operands) const;
  Wanted wanted(const DenseOperands& operands) const;
  const PackEntry* find(const Wanted& wanted);
  void add(const Wanted& wanted, const Tensor& packed, int64_t form);
  Digest digest_of(const Tensor& t, const DigestSecret& secret);
  void choose(const Wanted& wanted);
  bool written_over(const PackFile& file) const;
  size_t likeness(const PackFile& file);
  // The entry for these operands if its sources are what they were and its bytes are whole.
  const PackEntry* right_entry(const PackFile& file, const Wanted& wanted);
  bool unchanged(const PackFile& file, size_t source) const;
  std::vector<FileIdentity> settled_identities() const;
  std::filesystem::path path_of(const std::vector<PackRecord>& records) const;

  ThreadPool& pool_;
  std::vector<PackSource> sources_;
  PackCacheOptions options_;
  int64_t opened_ns_;
  std::string prefix_;  // of file names: the same for models whose largest files have the same size
  bool chosen_ = false;
  std::shared_ptr<const PackFile> saved_;
  std::vector<std::filesystem::path> superseded_;
  DigestSecret secret_{};
  std::vector<PackRecord> records_;  // all matrices of the model, in the order in which they were asked for
  std::set<const PackEntry*> used_;  // of `saved_`
  size_t fresh_ = 0;                 // how many records no file had
  int64_t bytes_ = 0;
};

}  // namespace situ
