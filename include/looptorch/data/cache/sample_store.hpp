// SPDX-License-Identifier: MIT
// Stores and reads samples of one kind (same settings, version and type) in a cache folder, within the
// folder's size limit. Checksums detect damaged samples, which are then computed anew.
#pragma once

#include <looptorch/base/hash/checksum.hpp>
#include <looptorch/data/cache/cache_folder.hpp>
#include <looptorch/data/cache/cached_options.hpp>
#include <looptorch/data/cache/sample_codec.hpp>
#include <looptorch/data/cache/sample_pack.hpp>

#include <c10/util/Exception.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace looptorch::detail {

class SampleStore {
 public:
  /// Opens the store; `layout` is the structure of the samples' type.
  SampleStore(const CacheOptions& options, const std::string& layout)
      : name_(options.folder.string()), folder_(options, layout), pack_(folder_.pack()) {}

  bool has(const PackKey& key) { return pack_.find(key).has_value(); }

  /// Returns the sample, or nothing if it is missing or damaged.
  template <Storable T>
  std::optional<T> read(const PackKey& key) {
    const auto entry = pack_.find(key);
    if (!entry) return std::nullopt;
    std::optional<T> sample = decode<T>(*entry);
    ++(sample ? read_ : damaged_);
    if (!sample) pack_.forget(key, *entry);
    return sample;
  }

  /// Stores a newly computed sample if there is room. Warns once if the system refuses to write a sample.
  template <Storable T>
  void write(const PackKey& key, const T& sample) {
    ++computed_;
    SampleWriter writer;
    writer.write(sample);
    const std::string fields = sealed(writer.fields);
    std::vector<PackPiece> pieces{std::as_bytes(std::span(fields))};
    for (const at::Tensor& tensor : writer.tensors)
      pieces.emplace_back(static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes());
    if (append(key, pieces)) return;
    ++not_stored_;
    if (error_ > 0 && !warned_.exchange(true))
      TORCH_WARN("looptorch: the cache ", name_, " cannot store a sample: ", reason(),
                 ". Samples that are not stored are computed each time");
  }

  CacheCounts counts() const {
    return {.read = read_,
            .computed = computed_,
            .damaged = damaged_ + static_cast<std::int64_t>(pack_.damaged_records()),
            .not_stored = not_stored_,
            .bytes = static_cast<std::int64_t>(pack_.bytes()),
            .not_stored_because = reason()};
  }

 private:
  /// Returns the fields with their checksum in front, so that damaged fields are never decoded.
  static std::string sealed(const std::string& fields) {
    Checksum sum;
    sum.add(fields.data(), fields.size());
    const std::uint64_t value = sum.value();
    return std::string(reinterpret_cast<const char*>(&value), sizeof(value)) + fields;
  }

  static bool is_sealed(std::string_view fields) {
    return fields.size() >= sizeof(std::uint64_t) &&
           sealed(std::string(fields.substr(sizeof(std::uint64_t)))) == fields;
  }

  bool append(const PackKey& key, std::span<const PackPiece> pieces) {
    PackAppend done = pack_.append(key, pieces, folder_.allowance());
    if (done.outcome == PackAppend::no_room && folder_.make_room(done.needs))
      done = pack_.append(key, pieces, folder_.allowance());
    if (done.outcome != PackAppend::stored)
      error_ = done.outcome == PackAppend::no_room ? kNoRoom : done.error;
    return done.outcome == PackAppend::stored;
  }

  std::string reason() const {
    const int error = error_;
    if (error == 0) return {};
    if (error == kNoRoom) return "max_bytes is reached";
    if (error == EWOULDBLOCK) return "another process holds the lock on the index and does not give it back";
    return std::generic_category().message(error);
  }

  template <Storable T>
  std::optional<T> decode(const PackEntry& entry) const {
    std::string fields(static_cast<std::size_t>(entry.field_bytes), '\0');
    if (!pack_.read(entry.offset, fields.data(), fields.size()) || !is_sealed(fields)) return std::nullopt;
    Checksum sum;
    sum.add(fields.data(), fields.size());
    std::uint64_t at = entry.offset + pack_aligned(entry.field_bytes);
    SampleReader reader(std::string_view(fields).substr(sizeof(std::uint64_t)),
                        [&](void* data, std::size_t size) {
                          if (!pack_.read(at, data, size)) throw SampleMismatch("a cached sample is cut off");
                          sum.add(data, size);
                          at += pack_aligned(size);
                        });
    return decode_with<T>(reader, [&] { return sum.value() == entry.checksum; });
  }

  template <class T, class Verify>
  static std::optional<T> decode_with(SampleReader& reader, const Verify& verify) {
    try {
      T sample{};
      reader.read(sample);
      return reader.at_end() && verify() ? std::optional<T>(std::move(sample)) : std::nullopt;
    } catch (const SampleMismatch&) {
      return std::nullopt;
    }
  }

  static constexpr int kNoRoom = -1;

  std::string name_;
  CacheFolder folder_;
  SamplePack pack_;
  std::atomic<int> error_ = 0;  // errno of the last sample that was not stored, or kNoRoom
  std::atomic<bool> warned_ = false;
  std::atomic<std::int64_t> read_ = 0, computed_ = 0, damaged_ = 0, not_stored_ = 0;
};

}  // namespace looptorch::detail
