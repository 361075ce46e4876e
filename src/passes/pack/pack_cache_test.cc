// Saved packed weights: never other bytes than packing gives, whatever happened to the model or to the saved file.
#include "passes/pack/pack_cache.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <random>
#include <set>
#include <string>
#include <thread>

#include "onnx/mapped_file.h"
#include "passes/pack/pack_header.h"
#include "passes/pack/pack_store.h"

namespace situ {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kColumns = 200, kDepth = 256, kMatrices = 5;
constexpr int32_t kBlock = 32;
constexpr int64_t kWeightBytes = kColumns * kDepth / 2, kScaleBytes = kColumns * (kDepth / kBlock) * 4,
                  kZeroBytes = kColumns * (kDepth / kBlock) / 2;
constexpr int64_t kMatrixBytes = kWeightBytes + kScaleBytes + kZeroBytes;

struct Start {
  std::string packed;  // all matrices, one after the other
  int64_t written = 0, mapped = 0, resident_source_pages = 0;
  fs::path file;
  bool saves = false;
  std::string problem;
};

class PackCacheTest : public testing::Test {
 protected:
  PackCacheTest() {
    std::string name = (fs::temp_directory_path() / "situ_pack_XXXXXX").string();
    folder_ = mkdtemp(name.data());
    model_ = folder_ / "model.data";
    write_model(model_, 1);
    options_.folder = folder_ / "cache" / "below";
    options_.least_bytes = 1;
    options_.settled_ns = 0;
  }
  ~PackCacheTest() override { fs::remove_all(folder_); }

  static std::string model_bytes(unsigned seed) {
    std::mt19937 random(seed);
    std::string bytes(static_cast<size_t>(kMatrices * kMatrixBytes), '\0');
    for (char& c : bytes) c = static_cast<char>(random());
    for (int64_t m = 0; m < kMatrices; ++m) {
      auto* scales = reinterpret_cast<float*>(bytes.data() + m * kMatrixBytes + kWeightBytes);
      // The last matrix has scales that half precision does not hold.
      for (int64_t i = 0; i < kScaleBytes / 4; ++i)
        scales[i] = static_cast<float>(1 + random() % 100) * (m == kMatrices - 1 ? 0.1f : 0.125f);
    }
    return bytes;
  }
  static void write_model(const fs::path& path, unsigned seed) { write(path, model_bytes(seed)); }
  static void write(const fs::path& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  }
  static std::string read(const fs::path& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  // Loads the model as an engine does, which the file `graph_` is part of if it has a name. `heap`: the passes have
  // made the weights, no file holds them.
  Start start(const fs::path& path, PackCacheOptions options, bool heap = false, const FileIdentity* forged = nullptr,
              int64_t matrices = kMatrices) {
    ThreadPool pool(2);
    auto file = onnx::MappedFile::open(path);
    EXPECT_TRUE(file.is_ok());
    const MappedBytes& bytes = **file;
    std::vector<PackSource> sources{{file->get(), path.string(), bytes.data, forged ? *forged : bytes.identity}};
    if (!graph_.empty()) sources.push_back({&graph_, graph_.string(), nullptr, identity_of(graph_.c_str())});
    PackCache cache(pool, std::move(sources), options);
    PackStore store(pool, &cache);
    store.add_file(file->get());
    Start s;
    std::vector<Tensor> results;
    for (int64_t m = 0; m < matrices; ++m) {
      const std::byte* at = bytes.data + m * kMatrixBytes;
      const std::shared_ptr<const void> owner = heap ? std::make_shared<int>(0) : std::shared_ptr<const void>(*file);
      const Tensor weights = Tensor::borrow(DType::kU8, {kWeightBytes}, at, owner),
                   scales = Tensor::borrow(DType::kF32, {kScaleBytes / 4}, at + kWeightBytes, owner);
      const Tensor zeros = Tensor::borrow(DType::kU8, {kZeroBytes}, at + kWeightBytes + kScaleBytes, owner);
      StoredMatrix w =
          stored_matrix({kDepth, kColumns, 4, kBlock, m % 2 == 1 ? ZeroPoints::kIntegers : ZeroPoints::kMiddle});
      w.digits.data = weights;
      w.scales.data = scales;
      w.zeros.data = zeros;
      Result<Packed> packed = store.pack(w, false);
      EXPECT_TRUE(packed.is_ok());
      EXPECT_EQ(packed->half_scales, m != kMatrices - 1);
      results.push_back(packed->data);
    }
    s.resident_source_pages = resident_pages(bytes);
    for (const Tensor& t : results) s.packed.append(t.view().as<const char>(), static_cast<size_t>(t.bytes()));
    s.written = store.written_bytes();
    s.mapped = store.bytes() - store.written_bytes();
    s.file = cache.file();
    std::optional<PackSave> save = cache.finish();
    s.saves = save.has_value();
    if (save) s.problem = (*save)();
    return s;
  }
  Start start() { return start(model_, options_); }
  Start start_without_cache(const fs::path& path) { return start(path, {}); }

  // Pages of the model that this process has looked at.
  static int64_t resident_pages(const MappedBytes& bytes) {
    const int fd = ::open("/proc/self/pagemap", O_RDONLY);
    int64_t count = 0;
    for (int64_t p = 0; p < bytes.size; p += 4096) {
      uint64_t entry = 0;
      if (pread(fd, &entry, 8,
                static_cast<off_t>((reinterpret_cast<uintptr_t>(bytes.data) + static_cast<uintptr_t>(p)) / 4096 * 8)) ==
          8)
        count += entry >> 63;
    }
    ::close(fd);
    return count;
  }

  std::vector<fs::path> saved() const {
    std::vector<fs::path> list;
    std::error_code error;
    for (const auto& e : fs::directory_iterator(options_.folder, error)) list.push_back(e.path());
    return list;
  }
  // The saved file's tables, changed by `edit`, under a right checksum.
  void edit(const std::function<void(PackHeader&, std::vector<FileIdentity>&, std::vector<PackEntry>&)>& edit) {
    const int fd = ::open(saved().at(0).c_str(), O_RDWR);
    PackHeader header;
    std::vector<FileIdentity> sources;
    std::vector<PackEntry> entries;
    ASSERT_TRUE(read_pack_tables(fd, static_cast<int64_t>(fs::file_size(saved()[0])), &header, &sources, &entries));
    edit(header, sources, entries);
    ASSERT_TRUE(write_pack_tables(fd, header, sources, entries));
    ::close(fd);
  }

  fs::path folder_, model_, graph_;
  PackCacheOptions options_;
};

TEST_F(PackCacheTest, TheSecondStartMapsWhatTheFirstHasPackedAndReadsNoWeights) {
  const Start first = start(), second = start();
  EXPECT_EQ(first.problem, "");
  EXPECT_TRUE(first.saves && first.written > 0 && first.mapped == 0 && first.file.empty());
  EXPECT_TRUE(!second.saves && second.written == 0 && second.mapped == first.written);
  EXPECT_EQ(second.packed, first.packed);
  EXPECT_EQ(second.packed, start_without_cache(model_).packed);
  EXPECT_EQ(second.resident_source_pages, 0);
  ASSERT_EQ(saved().size(), 1u);
  EXPECT_EQ(second.file, saved()[0]);
  struct stat info;
  ASSERT_EQ(stat(saved()[0].c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

TEST_F(PackCacheTest, NothingIsSavedForSmallModelsOrWithoutAFolder) {
  options_.least_bytes = int64_t{1} << 30;
  EXPECT_FALSE(start().saves);
  EXPECT_FALSE(start(model_, {}).saves);
  // A file where a folder should be.
  options_.least_bytes = 1;
  options_.folder = model_ / "cache";
  const Start s = start();
  EXPECT_NE(s.problem, "");
  EXPECT_EQ(s.packed, start_without_cache(model_).packed);
}

TEST_F(PackCacheTest, ACopyOrATouchedModelIsKnownByItsContent) {
  const Start first = start();
  const fs::path copy = folder_ / "copy.data";
  fs::copy_file(model_, copy);
  const Start copied = start(copy, options_);
  EXPECT_TRUE(copied.written == 0 && copied.saves && copied.packed == first.packed);
  EXPECT_EQ(saved().size(), 1u);
  // Now the copy is known, too.
  EXPECT_EQ(start(copy, options_).resident_source_pages, 0);
  ::chmod(copy.c_str(), 0600);
  const Start touched = start(copy, options_);
  EXPECT_TRUE(touched.written == 0 && touched.packed == first.packed);
  EXPECT_FALSE(start(copy, options_).saves);
}

TEST_F(PackCacheTest, AModelOfEqualShapeHasItsOwn) {
  const fs::path tuned = folder_ / "tuned.data";
  write_model(tuned, 2);
  for (int round = 0; round < 3; ++round)
    for (const fs::path& path : {model_, tuned}) {
      const Start s = start(path, options_);
      EXPECT_EQ(s.packed, start_without_cache(path).packed);
      EXPECT_EQ(s.written == 0, round > 0);
    }
  EXPECT_EQ(saved().size(), 2u);
  // One weight of one matrix, in a file of its own: the other matrices are taken, that one is not.
  const fs::path nearly = folder_ / "nearly.data";
  std::string bytes = model_bytes(1);
  bytes[3 * kMatrixBytes + kWeightBytes - 1] ^= 1;
  write(nearly, bytes);
  const Start s = start(nearly, options_);
  EXPECT_EQ(s.packed, start_without_cache(nearly).packed);
  EXPECT_TRUE(s.written > 0 && s.mapped > s.written);
  EXPECT_EQ(start(model_, options_).packed, start_without_cache(model_).packed);
}

TEST_F(PackCacheTest, ModelsThatShareMostMatricesAreToldApart) {
  options_.settled_ns = int64_t{3600} * 1000000000;  // by content, that is
  std::vector<fs::path> paths;
  for (int64_t m = 0; m < kMatrices; ++m) {
    std::string bytes = model_bytes(1);
    bytes[static_cast<size_t>(m * kMatrixBytes)] ^= 1;
    write(paths.emplace_back(folder_ / std::to_string(m)), bytes);
  }
  for (int round = 0; round < 3; ++round)
    for (const fs::path& path : paths) {
      const Start s = start(path, options_);
      EXPECT_EQ(s.packed, start_without_cache(path).packed) << path;
      EXPECT_EQ(s.written == 0, round > 0) << path;
    }
}

TEST_F(PackCacheTest, AModelChangedInPlaceIsNoticed) {
  start();
  for (const int64_t at : {int64_t{0}, kWeightBytes + 2, kMatrixBytes + kWeightBytes + kScaleBytes,
                           kMatrices * kMatrixBytes - kScaleBytes - kZeroBytes - 1}) {
    struct stat before;
    ASSERT_EQ(stat(model_.c_str(), &before), 0);
    std::fstream file(model_, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(at);
    const int c = file.get();
    file.seekp(at);
    file.put(static_cast<char>(c ^ 1));
    file.close();
    // Whoever changes it may even set the old time.
    const timespec times[2] = {before.st_atim, before.st_mtim};
    ASSERT_EQ(utimensat(AT_FDCWD, model_.c_str(), times, 0), 0);
    const Start s = start();
    EXPECT_EQ(s.packed, start_without_cache(model_).packed) << at;
    EXPECT_GT(s.written, 0) << at;
    EXPECT_EQ(start().written, 0) << at;
  }
}

TEST_F(PackCacheTest, TheSavedFileOfAModelThatWasWrittenOverGoes) {
  start();
  write_model(model_, 2);
  EXPECT_EQ(start().packed, start_without_cache(model_).packed);
  EXPECT_EQ(saved().size(), 1u);
}

TEST_F(PackCacheTest, TheSavedFileOfAFreshlyWrittenModelGoesToo) {
  options_.settled_ns = int64_t{3600} * 1000000000;
  start();
  write_model(model_, 2);
  EXPECT_EQ(start().packed, start_without_cache(model_).packed);
  EXPECT_EQ(saved().size(), 1u);
  // Most of it is what it was.
  std::string bytes = model_bytes(2);
  for (int64_t m = 0; m < kMatrices; ++m) {
    bytes[static_cast<size_t>(m * kMatrixBytes)] ^= 1;
    write(model_, bytes);
    const Start s = start();
    EXPECT_EQ(s.packed, start_without_cache(model_).packed);
    EXPECT_EQ(s.mapped == 0, m == 0);  // it is looked for by its first matrix
    EXPECT_EQ(saved().size(), 1u);
  }
  // A copy has its own.
  const fs::path copy = folder_ / "copy.data";
  bytes[0] ^= 1;
  write(copy, bytes);
  start(copy, options_);
  EXPECT_EQ(saved().size(), 2u);
}

TEST_F(PackCacheTest, FreshModelsThatShareAFileKeepTheirSavedOnes) {
  options_.settled_ns = int64_t{3600} * 1000000000;
  graph_ = folder_ / "model.onnx";
  write(graph_, "what both compute");
  const fs::path other = folder_ / "other.data";
  write_model(other, 2);
  for (int round = 0; round < 3; ++round)
    for (const fs::path& path : {model_, other}) {
      const Start s = start(path, options_);
      EXPECT_EQ(s.packed, start_without_cache(path).packed);
      EXPECT_EQ(s.written == 0, round > 0) << path;
    }
  EXPECT_EQ(saved().size(), 2u);
  // Both files stay where they are.
  write_model(model_, 3);
  start();
  EXPECT_EQ(saved().size(), 2u);
}

TEST_F(PackCacheTest, AFreshlyWrittenModelIsComparedByContent) {
  options_.settled_ns = int64_t{3600} * 1000000000;
  start();
  const Start second = start();
  EXPECT_TRUE(second.written == 0 && !second.saves);
  // Changed without a trace in its identity.
  const FileIdentity identity = identity_of(model_.c_str());
  write_model(model_, 2);
  const Start s = start(model_, options_, false, &identity);
  EXPECT_EQ(s.mapped, 0);
  EXPECT_EQ(s.packed, start_without_cache(model_).packed);
}

TEST_F(PackCacheTest, AModelThatChangesWhileItIsLoadedIsNotSaved) {
  FileIdentity other = identity_of(model_.c_str());
  other.changed_ns -= 1;
  EXPECT_FALSE(start(model_, options_, false, &other).saves);
}

TEST_F(PackCacheTest, WeightsThatPassesMadeAreKnownByTheirContent) {
  const Start first = start(model_, options_, true), second = start(model_, options_, true);
  EXPECT_TRUE(second.written == 0 && second.packed == first.packed);
  const fs::path tuned = folder_ / "tuned.data";
  write_model(tuned, 2);
  const Start other = start(tuned, options_, true);
  EXPECT_EQ(other.mapped, 0);
  EXPECT_EQ(other.packed, start_without_cache(tuned).packed);
}

// Weights that passes made are dropped once they are packed; others may be made at their address.
TEST_F(PackCacheTest, WhatLiesWhereOtherWeightsLayIsPackedAnew) {
  ThreadPool pool(1);
  PackStore store(pool);
  std::string bytes = model_bytes(1);
  auto pack = [&](const std::shared_ptr<const void>& owner) {
    const auto* at = reinterpret_cast<const std::byte*>(bytes.data());
    const Tensor weights = Tensor::borrow(DType::kU8, {kWeightBytes}, at, owner),
                 scales = Tensor::borrow(DType::kF32, {kScaleBytes / 4}, at + kWeightBytes, owner);
    StoredMatrix w = stored_matrix({kDepth, kColumns, 4, kBlock});
    w.digits.data = weights;
    w.scales.data = scales;
    Result<Packed> packed = store.pack(w, false);
    EXPECT_TRUE(packed.is_ok());
    return packed->data;
  };
  auto first = std::make_shared<int>(0);
  const Tensor a = pack(first);
  EXPECT_EQ(pack(first).view().data, a.view().data);
  first.reset();
  for (char& c : bytes) c = static_cast<char>(c ^ 0x11);
  const auto second = std::make_shared<int>(0);
  const Tensor b = pack(second);
  EXPECT_NE(std::memcmp(a.view().data, b.view().data, static_cast<size_t>(a.bytes())), 0);
  EXPECT_EQ(pack(second).view().data, b.view().data);
}

TEST_F(PackCacheTest, DamagedFilesAreReplaced) {
  const std::string want = start().packed, good = read(saved()[0]);
  std::mt19937 random(7);
  int repacked = 0;
  for (int i = 0; i < 90; ++i) {
    std::string bad = good;
    const size_t tables = sizeof(PackHeader) + sizeof(FileIdentity) + kMatrices * sizeof(PackEntry);
    if (i % 3 == 0)
      bad.resize(random() % bad.size());
    else if (i % 3 == 1)
      bad[random() % tables] ^= static_cast<char>(1 << random() % 8);
    else
      bad[random() % bad.size()] ^= static_cast<char>(1 << random() % 8);
    write(saved()[0], bad);
    const Start s = start();
    ASSERT_EQ(s.packed, want) << "damage " << i;
    repacked += s.written > 0;
    ASSERT_EQ(saved().size(), 1u);
    ASSERT_EQ(start().written, 0) << "damage " << i;
  }
  EXPECT_GT(repacked, 60);
}

TEST_F(PackCacheTest, WhatIsNoFileOfThisVersionUnderItsNameIsReplaced) {
  const std::string want = start().packed;
  const std::function<void(PackHeader&)> changes[] = {
      [](PackHeader& h) { --h.format; },       [](PackHeader& h) { ++h.format; },
      [](PackHeader& h) { ++h.layout; },       [](PackHeader& h) { ++h.layout_probe; },
      [](PackHeader& h) { h.magic[0] = 's'; }, [](PackHeader& h) { ++h.file_bytes; }};
  for (const auto& change : changes) {
    edit([&](PackHeader& h, auto&, auto&) { change(h); });
    const Start s = start();
    EXPECT_EQ(s.mapped, 0);
    EXPECT_EQ(s.packed, want);
    EXPECT_EQ(start().written, 0);
    EXPECT_EQ(saved().size(), 1u);
  }
}

// Files of the same model under other names, as other versions give them.
TEST_F(PackCacheTest, OnlyFilesOfOlderVersionsAreRemoved) {
  const Start first = start();
  const fs::path own = saved().at(0), folder = options_.folder;
  const std::string good = read(own), name = own.filename().string(), prefix = name.substr(0, name.find('-') + 1);
  EXPECT_NE(name.find("-f" + std::to_string(kPackFormat) + "l" + std::to_string(kPackLayout) + "."), std::string::npos);
  const auto add = [&](const std::string& file, const std::function<void(PackHeader&)>& change) {
    PackHeader header;
    std::memcpy(&header, good.data(), sizeof(header));
    change(header);
    std::string bytes = good;
    std::memcpy(bytes.data(), &header, sizeof(header));
    write(folder / file, bytes);
  };
  fs::remove(own);
  add(prefix + "1.situpack", [](PackHeader& h) { --h.format; });  // from before versions stood in names
  add(prefix + "2-f3l1.situpack", [](PackHeader& h) { --h.layout; });
  add(prefix + "3-f4l2.situpack", [](PackHeader& h) { ++h.format; });
  add(prefix + "4-f3l3.situpack", [](PackHeader& h) { ++h.layout; });
  add(prefix + "5-f2l3.situpack", [](PackHeader& h) { --h.format, ++h.layout; });
  add(prefix + "6.situpack", [](PackHeader& h) { h.magic[0] = 's'; });
  add(prefix + "7-f3l2.situpack", [](PackHeader& h) { ++h.file_bytes; });  // damaged: perhaps another model's
  add("0" + prefix + "8.situpack", [](PackHeader& h) { --h.format; });     // another model's
  write(folder / (prefix + "9.situpack"), "");

  const Start again = start();
  EXPECT_EQ(again.problem, "");
  EXPECT_EQ(again.packed, first.packed);
  EXPECT_EQ(again.mapped, 0);
  std::set<std::string> left;
  for (const fs::path& path : saved()) left.insert(path.filename().string());
  EXPECT_EQ(left, (std::set<std::string>{name, prefix + "3-f4l2.situpack", prefix + "4-f3l3.situpack",
                                         prefix + "5-f2l3.situpack", prefix + "6.situpack", prefix + "7-f3l2.situpack",
                                         "0" + prefix + "8.situpack", prefix + "9.situpack"}));
  EXPECT_EQ(start().written, 0);
}

TEST_F(PackCacheTest, TablesOutOfBoundsAreRefused) {
  start();
  const std::string good = read(saved()[0]);
  constexpr int64_t kMost = INT64_MAX, kLeast = INT64_MIN;
  std::vector<std::function<void(PackEntry&)>> changes;
  for (const int64_t bad : {kLeast, int64_t{-64}, int64_t{0}, int64_t{32}, kMost, kMost / 64 * 64, int64_t{1} << 40}) {
    changes.push_back([=](PackEntry& e) { e.offset = bad; });
    changes.push_back([=](PackEntry& e) { e.request.operands[1].file = bad == 0 ? 1 : bad; });
    if (bad == 32) continue;
    changes.push_back([=](PackEntry& e) { e.bytes = bad; });
    if (bad > 0 || bad == 0) continue;
    changes.push_back([=](PackEntry& e) { e.request.operands[0].offset = bad; });
    changes.push_back([=](PackEntry& e) { e.request.operands[2].bytes = bad; });
  }
  for (const int64_t form : {-1, 2, 16, 256, 1 << 20}) changes.push_back([=](PackEntry& e) { e.form = form; });
  for (const int64_t form : {-1, 0, 2, 11, 257, 1 << 20})
    changes.push_back([=](PackEntry& e) {
      e.request.float_type = static_cast<int32_t>(DType::kF32);
      e.form = form;
    });
  changes.push_back([](PackEntry& e) {
    e.request.float_type = 257;
    e.form = 1;
  });
  for (size_t i = 0; i < changes.size(); ++i) {
    write(saved()[0], good);
    edit([&](auto&, auto&, std::vector<PackEntry>& entries) { changes[i](entries[1]); });
    EXPECT_EQ(PackFile::open(saved()[0]), nullptr) << i;
  }
  // In bounds, but not what such a matrix takes: not used.
  write(saved()[0], good);
  edit([&](auto&, auto&, std::vector<PackEntry>& entries) { entries[0].bytes -= 64; });
  const Start s = start();
  EXPECT_EQ(s.packed, start_without_cache(model_).packed);
}

TEST_F(PackCacheTest, AfterARebootTheBytesAreCheckedOnce) {
  const std::string want = start().packed;
  edit([](PackHeader& h, auto&, auto&) { h.boot[0] ^= 1; });
  EXPECT_FALSE(PackFile::open(saved()[0])->intact());
  const Start checked = start();
  EXPECT_TRUE(checked.written == 0 && checked.saves && checked.packed == want);
  EXPECT_TRUE(PackFile::open(saved()[0])->intact());
  EXPECT_FALSE(start().saves);
}

TEST_F(PackCacheTest, ATimeThatWasRestoredSaysNothing) {
  const std::string want = start().packed;
  edit([](PackHeader& h, auto&, auto& entries) {
    h.modified_ns -= int64_t{10} * 1000000000;
    entries[0].packed.low ^= 1;  // as if its bytes were others
  });
  EXPECT_FALSE(PackFile::open(saved()[0])->intact());
  const Start mended = start();
  EXPECT_TRUE(mended.written > 0 && mended.packed == want);
  EXPECT_TRUE(PackFile::open(saved()[0])->intact());
}

TEST_F(PackCacheTest, WhatAStartDidNotAskForIsNotCalledRight) {
  const std::string want = start().packed;
  std::string bytes = read(saved()[0]);
  bytes[bytes.size() - 100] ^= 1;
  write(saved()[0], bytes);
  const Start part = start(model_, options_, false, nullptr, kMatrices - 1);
  EXPECT_TRUE(part.written == 0 && part.saves && part.problem.empty());
  EXPECT_EQ(start().packed, want);
}

TEST_F(PackCacheTest, FilesThatOthersCouldHaveWrittenAreNotRead) {
  start();
  const fs::path file = saved()[0];
  const std::string good = read(file);
  ::chmod(file.c_str(), 0620);
  EXPECT_EQ(PackFile::open(file), nullptr);
  ::chmod(file.c_str(), 0602);
  EXPECT_EQ(PackFile::open(file), nullptr);
  ::chmod(file.c_str(), 0644);
  EXPECT_NE(PackFile::open(file), nullptr);
  const fs::path elsewhere = folder_ / "elsewhere";
  fs::rename(file, elsewhere);
  fs::create_symlink(elsewhere, file);
  EXPECT_EQ(PackFile::open(file), nullptr);
  fs::remove(file);
  ASSERT_EQ(mkfifo(file.c_str(), 0600), 0);
  EXPECT_EQ(PackFile::open(file), nullptr);
  EXPECT_EQ(PackFile::open(folder_), nullptr);
  EXPECT_EQ(start().packed, start_without_cache(model_).packed);
}

TEST_F(PackCacheTest, StartsAtTheSameTimeDoNotHarmEachOther) {
  const std::string want = start_without_cache(model_).packed;
  for (int round = 0; round < 4; ++round) {
    std::vector<std::string> got(6);
    std::vector<std::thread> threads;
    for (std::string& packed : got) threads.emplace_back([&] { packed = start().packed; });
    for (std::thread& t : threads) t.join();
    for (const std::string& packed : got) EXPECT_EQ(packed, want);
    ASSERT_EQ(saved().size(), 1u);
    EXPECT_EQ(start().written, 0);
    if (round % 2 == 0)
      fs::remove(saved()[0]);
    else
      edit([](PackHeader& h, auto&, auto&) { h.boot[0] ^= 1; });
  }
}

TEST_F(PackCacheTest, WhatAnEndedProcessLeftIsRemoved) {
  fs::create_directories(options_.folder);
  const fs::path left = options_.folder / "0-0.situpack.1-1.tmp", writing = options_.folder / "0-0.situpack.1-2.tmp";
  write(left, "half");
  write(writing, "half");
  const int fd = ::open(writing.c_str(), O_RDWR);
  ASSERT_EQ(flock(fd, LOCK_EX), 0);
  EXPECT_EQ(start().problem, "");
  EXPECT_FALSE(fs::exists(left));
  EXPECT_TRUE(fs::exists(writing));
  ::close(fd);
}

TEST_F(PackCacheTest, TheFolderComesFromTheEnvironment) {
  auto folder = [](const char* own, const char* all, const char* home) {
    auto set = [](const char* name, const char* value) { value ? setenv(name, value, 1) : unsetenv(name); };
    set("SITU_CACHE_DIR", own);
    set("XDG_CACHE_HOME", all);
    set("HOME", home);
    return pack_cache_folder();
  };
  EXPECT_EQ(folder("/a", "/b", "/c"), "/a");
  EXPECT_EQ(folder("", "/b", "/c"), "");
  EXPECT_EQ(folder(nullptr, "/b", "/c"), "/b/situ");
  EXPECT_EQ(folder(nullptr, "b", "/c"), "/c/.cache/situ");
  EXPECT_EQ(folder(nullptr, nullptr, nullptr), "");
}

}  // namespace
}  // namespace situ
