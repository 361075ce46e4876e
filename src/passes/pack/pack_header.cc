#include "passes/pack/pack_header.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <string_view>

#include "kernels/integer_layout.h"
#include "kernels/kernel.h"
#include "kernels/packed_layout.h"
#include "ops/quantised.h"

namespace situ {
namespace {

constexpr int64_t kNamingTime =
    int64_t{2} * 1000000000;  // ns from the last byte to the file's own name, which changes its status
constexpr char kMagic[8] = {'S', 'I', 'T', 'U', 'P', 'A', 'C', 'K'};

uint64_t dense_probe(uint64_t sum) {
  constexpr int64_t kColumns = 40, kDepth = 20;
  Tensor weights = Tensor::allocate(DType::kF32, {kDepth, kColumns});
  for (int64_t i = 0; i < weights.count(); ++i) weights.view().as<float>()[i] = static_cast<float>(i % 251);
  const PackDenseParams all{{kDepth, kColumns}, 0, kDepth, 0, 2};
  for (const DType type : {DType::kF32, DType::kF16, DType::kBF16}) {
    const Tensor packed = Tensor::allocate(type, {all.product.packed_count()});
    const View in = weights.view(), out = packed.view();
    KernelCall call;
    call.in = &in;
    call.in_count = 1;
    call.out = &out;
    call.out_count = 1;
    call.params = &all;
    kernels().pack_dense(call, 0, 1);
    sum = checksum(out.data, static_cast<size_t>(packed.bytes()), sum);
  }
  return sum;
}

uint64_t integer_probe(uint64_t sum) {
  constexpr IntegerLayout kLayout{20, 40};
  Tensor weights = Tensor::allocate(DType::kI8, {kLayout.k, kLayout.n});
  for (int64_t i = 0; i < weights.count(); ++i) weights.view().as<uint8_t>()[i] = static_cast<uint8_t>(i * 37);
  const PackIntegerParams all{kLayout, 0, kLayout.units()};
  const Tensor packed = Tensor::allocate(DType::kU8, {kLayout.bytes()});
  const View in = weights.view(), out = packed.view();
  KernelCall call;
  call.in = &in;
  call.in_count = 1;
  call.out = &out;
  call.out_count = 1;
  call.params = &all;
  kernels().pack_integer(call, 0, 1);
  return checksum(out.data, static_cast<size_t>(packed.bytes()), sum);
}

// Packs a small matrix in every form and digests the result: files of a build whose kernels lay weights out otherwise
// are not read, even if nobody has raised kPackLayout.
uint64_t layout_probe() {
  constexpr int64_t kColumns = 40, kDepth = 80;  // one whole unit and a part of one; half a block at the end
  constexpr int32_t kBlock = 32;
  const int64_t blocks = (kDepth + kBlock - 1) / kBlock;
  uint64_t sum = kColumns;
  for (const int32_t bits : {4, 8})
    for (const bool half : {false, true})
      for (const ZeroPoints zeros :
           {ZeroPoints::kMiddle, ZeroPoints::kIntegers, ZeroPoints::kFloats, ZeroPoints::kTable}) {
        Tensor weights = Tensor::allocate(DType::kU8, {kColumns * blocks * kBlock * bits / 8}),
               scales = Tensor::allocate(DType::kF32, {kColumns * blocks});
        Tensor zero_points = Tensor::allocate(DType::kU8, {kColumns * blocks});
        for (int64_t i = 0; i < weights.bytes(); ++i)
          weights.view().as<uint8_t>()[i] = static_cast<uint8_t>((i * 2654435761u) >> 13);
        for (int64_t i = 0; i < scales.count(); ++i) scales.view().as<float>()[i] = static_cast<float>(i + 1);
        for (int64_t i = 0; i < zero_points.bytes(); ++i)
          zero_points.view().as<uint8_t>()[i] = static_cast<uint8_t>(i * 37);
        const PackedMatMulParams params = packed_params(
            {kDepth, kColumns, bits, kBlock, zeros, DigitTable::kNone, zeros == ZeroPoints::kTable}, half);
        const PackedLayout layout = packed_layout(params);
        const Tensor packed = Tensor::allocate(DType::kU8, {layout.bytes()});
        const PackNBitsParams all{params, 0, layout.units()};
        const View in[] = {weights.view(), scales.view(),
                           zeros == ZeroPoints::kFloats ? scales.view() : zero_points.view()},
                   out = packed.view();
        KernelCall call;
        call.in = in;
        call.in_count = 3;
        call.out = &out;
        call.out_count = 1;
        call.params = &all;
        kernels().pack_nbits(call, 0, 1);
        sum = checksum(out.data, static_cast<size_t>(layout.bytes()), sum);
      }
  return integer_probe(dense_probe(sum));
}

uint64_t known_layout_probe() {
  static const uint64_t probe = layout_probe();
  return probe;
}

// Zeros where the system does not say.
void read_boot(char (&boot)[40]) {
  for (char& c : boot) c = 0;
  const int fd = ::open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return;
  if (::read(fd, boot, sizeof(boot) - 1) < 36) boot[0] = 0;
  ::close(fd);
}

uint64_t checksum_of(PackHeader header, const std::vector<FileIdentity>& sources,
                     const std::vector<PackEntry>& entries) {
  header.checksum = 0;
  return checksum(entries.data(), entries.size() * sizeof(PackEntry),
                  checksum(sources.data(), sources.size() * sizeof(FileIdentity), checksum(&header, sizeof(header))));
}

// Bounds only: how many bytes a matrix needs is compared where it is asked for.
bool sound(const PackEntry& e, const PackHeader& header) {
  for (const SourceRange& r : e.request.operands)
    if (r.file < SourceRange::kNoFile || r.file >= static_cast<int64_t>(header.sources) || r.offset < 0 || r.bytes < 0)
      return false;
  if (!e.request.has_form(e.form)) return false;
  return e.offset % kPackAlignment == 0 && e.offset >= header.tables_bytes() && e.bytes > 0 &&
         e.bytes <= header.file_bytes && e.offset <= header.file_bytes - e.bytes;
}

}  // namespace

bool read_at(int descriptor, void* data, size_t bytes, int64_t offset) {
  for (auto* to = static_cast<std::byte*>(data); bytes > 0;) {
    const ssize_t n = pread(descriptor, to, bytes, offset);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    to += n;
    offset += n;
    bytes -= static_cast<size_t>(n);
  }
  return true;
}

bool write_at(int descriptor, const void* data, size_t bytes, int64_t offset) {
  for (auto* from = static_cast<const std::byte*>(data); bytes > 0;) {
    const ssize_t n = pwrite(descriptor, from, bytes, offset);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    from += n;
    offset += n;
    bytes -= static_cast<size_t>(n);
  }
  return true;
}

PackHeader make_pack_header(int64_t file_bytes, int64_t modified_ns, const DigestSecret& secret) {
  PackHeader h{};
  for (size_t i = 0; i < sizeof(kMagic); ++i) h.magic[i] = kMagic[i];
  h.format = kPackFormat;
  h.layout = kPackLayout;
  h.layout_probe = known_layout_probe();
  h.file_bytes = file_bytes;
  h.modified_ns = modified_ns;
  read_boot(h.boot);
  h.secret = secret;
  return h;
}

bool write_pack_tables(int descriptor, PackHeader header, const std::vector<FileIdentity>& sources,
                       const std::vector<PackEntry>& entries) {
  header.sources = sources.size();
  header.entries = entries.size();
  header.checksum = checksum_of(header, sources, entries);
  const size_t source_bytes = sources.size() * sizeof(FileIdentity), entry_bytes = entries.size() * sizeof(PackEntry);
  const timespec modified{header.modified_ns / 1000000000, header.modified_ns % 1000000000},
      times[2] = {modified, modified};
  return write_at(descriptor, &header, sizeof(header), 0) &&
         write_at(descriptor, sources.data(), source_bytes, sizeof(header)) &&
         write_at(descriptor, entries.data(), entry_bytes, static_cast<int64_t>(sizeof(header) + source_bytes)) &&
         futimens(descriptor, times) == 0;
}

static bool has_magic(const PackHeader& header) {
  return std::string_view(header.magic, sizeof(kMagic)) == std::string_view(kMagic, sizeof(kMagic));
}

bool read_pack_version(int descriptor, uint32_t* format, uint32_t* layout) {
  PackHeader header;
  if (!read_at(descriptor, &header, offsetof(PackHeader, layout_probe), 0) || !has_magic(header)) return false;
  *format = header.format;
  *layout = header.layout;
  return true;
}

bool read_pack_tables(int descriptor, int64_t file_bytes, PackHeader* header, std::vector<FileIdentity>* sources,
                      std::vector<PackEntry>* entries) {
  if (!read_at(descriptor, header, sizeof(*header), 0)) return false;
  if (!has_magic(*header)) return false;
  if (header->format != kPackFormat || header->layout != kPackLayout || header->layout_probe != known_layout_probe())
    return false;
  if (header->sources > kMaxPackSources || header->entries > kMaxPackEntries || header->file_bytes != file_bytes ||
      header->tables_bytes() > file_bytes)
    return false;
  sources->resize(header->sources);
  entries->resize(header->entries);
  const size_t source_bytes = sources->size() * sizeof(FileIdentity);
  if (!read_at(descriptor, sources->data(), source_bytes, sizeof(*header))) return false;
  if (!read_at(descriptor, entries->data(), entries->size() * sizeof(PackEntry),
               static_cast<int64_t>(sizeof(*header) + source_bytes)))
    return false;
  if (header->checksum != checksum_of(*header, *sources, *entries)) return false;
  for (const PackEntry& e : *entries)
    if (!sound(e, *header)) return false;
  return true;
}

bool untouched(const PackHeader& header, const FileIdentity& file) {
  char boot[40];
  read_boot(boot);
  // Whoever writes to a file and gives it its old time again changes its status later than that.
  if (file.changed_ns - file.modified_ns > kNamingTime) return false;
  return boot[0] != 0 && std::string_view(boot, sizeof(boot)) == std::string_view(header.boot, sizeof(boot)) &&
         header.modified_ns == file.modified_ns;
}

}  // namespace situ
