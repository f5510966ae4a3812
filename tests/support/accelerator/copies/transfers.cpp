// SPDX-License-Identifier: MIT
// Implements Transfers, the asynchronous copies between pinned memory and a device: delays them, and reports
// accesses of the program that come too early.
#include "support/accelerator/copies/transfers.hpp"

#include "support/accelerator/driver.hpp"
#include "support/accelerator/memory/traps.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

namespace looptorch_test::accelerator {

namespace {

constexpr unsigned char kPoison = 0xff;

bool overlap(const char* a, std::size_t a_bytes, const char* b, std::size_t b_bytes) {
  return a < b + b_bytes && b < a + a_bytes;
}

/// A checksum (FNV-1a over words).
std::uint64_t sum_of(const char* data, std::size_t bytes) {
  constexpr std::uint64_t kPrime = 1099511628211u;
  std::uint64_t sum = 1469598103934665603u;
  std::size_t i = 0;
  for (; i + 8 <= bytes; i += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, data + i, 8);
    sum = (sum ^ word) * kPrime;
  }
  for (; i < bytes; ++i) sum = (sum ^ static_cast<unsigned char>(data[i])) * kPrime;
  return sum;
}

/// Calls `use(begin, end)` for the parts of some memory that none of these copies to the host writes.
template <class Downloads, class Use>
void for_each_unwritten(const char* at, const char* const end, const Downloads& downloads, const Use& use) {
  while (at < end) {
    const char* stop = end;
    const char* past = nullptr;  // the end of the download that covers `at`
    for (const auto& download : downloads) {
      if (download->to <= at && at < download->to + download->bytes)
        past = std::max<const char*>(past, download->to + download->bytes);
      if (download->to > at) stop = std::min<const char*>(stop, download->to);
    }
    if (past) {
      at = std::min(past, end);
    } else {
      use(at, stop);
      at = stop;
    }
  }
}

}  // namespace

void Transfers::report_unordered(int stream, const char* what, int other, const char* with) {
  driver_.ledger.violation(std::string("a copy ") + what + " on " + stream_name(stream) + with +
                           stream_name(other) + ", and does not wait for it");
}

// ---- Uploads ----

/// Copies the parts of an upload's memory that no pending download writes, for the memory is about to change.
void Transfers::take_snapshot(Upload& upload) {
  if (upload.snapshot) return;
  std::vector<char> bytes(upload.bytes);
  for_each_unwritten(upload.from, upload.from + upload.bytes, upload.sources,
                     [&](const char* begin, const char* end) {
                       std::copy(begin, end, bytes.data() + (begin - upload.from));
                     });
  upload.snapshot = std::move(bytes);
}

std::vector<char> Transfers::gather(const Upload& upload, bool is_late) {
  Upload whole = upload;
  take_snapshot(whole);
  std::vector<char>& bytes = *whole.snapshot;
  for (const auto& source : upload.sources) {
    const std::vector<char>& contents = source->contents(is_late);
    const char* const begin = std::max<const char*>(source->to, upload.from);
    const char* const end = std::min<const char*>(source->to + source->bytes, upload.from + upload.bytes);
    char* const to = bytes.data() + (begin - upload.from);
    if (contents.empty())
      std::memset(to, kPoison, static_cast<std::size_t>(end - begin));
    else
      std::memcpy(to, contents.data() + (begin - source->to), static_cast<std::size_t>(end - begin));
  }
  return std::move(bytes);
}

void Transfers::run(Upload& upload, bool is_late) {
  char* const to = driver_.in(is_late ? Copy::late : Copy::issued, upload.to);
  if (!upload.snapshot && upload.sources.empty()) {
    std::memcpy(to, upload.from, upload.bytes);
  } else {
    std::memcpy(to, gather(upload, is_late).data(), upload.bytes);
  }
}

void Transfers::finish(const std::shared_ptr<Upload>& upload) {
  if (driver_.device(device_of_stream(upload->stream)).error.empty())
    run(*upload, driver_.options.behind_host);
  if (upload->keeps && --upload->keeps->readers == 0) driver_.pinned.recycle(*upload->keeps);
  uploads_.remove(upload);
}

void Transfers::upload(int stream, Time time, const char* from, char* to, std::size_t bytes) {
  ++driver_.ledger.counts.copies, ++driver_.ledger.counts.uploads;
  const Clock& known = driver_.timeline.stream(stream);
  auto upload = std::make_shared<Upload>(Upload{
      .stream = stream, .time = time, .from = from, .to = to, .bytes = bytes, .sources = {}, .snapshot = {}});
  for (const auto& download : downloads_)
    if (overlap(download->to, download->bytes, from, bytes)) {
      if (!known.covers(download->stream, download->time))
        report_unordered(stream, "to the device", download->stream,
                         " reads pinned memory that a copy writes on ");
      upload->sources.push_back(download);
    }
  if (upload->sources.empty()) watches_.push_back({stream, time, from, bytes, sum_of(from, bytes)});
  if (driver_.options.behind_host) run(*upload, false);
  uploads_.push_back(upload);
  driver_.queue.push({stream, time, known, [this, upload] { finish(upload); }});
  driver_.queue.run_some();
}

void Transfers::check(const Watch& watch) {
  if (sum_of(watch.from, watch.bytes) != watch.sum)
    driver_.ledger.violation("pinned memory was written while it was being copied to the device on " +
                             stream_name(watch.stream));
}

/// Checks the watches over some memory, which ends them.
template <class Lost>
void Transfers::drop_watches(const char* begin, std::size_t bytes, const Lost& lost) {
  std::erase_if(watches_, [&](const Watch& watch) {
    if (!overlap(watch.from, watch.bytes, begin, bytes)) return false;
    check(watch);
    lost(watch);
    return true;
  });
}

// ---- Downloads ----

void Transfers::download(int stream, Time time, const char* from, char* to, std::size_t bytes,
                         HostBlock& block) {
  ++driver_.ledger.counts.copies, ++driver_.ledger.counts.downloads;
  const Clock& known = driver_.timeline.stream(stream);
  auto download = std::make_shared<Download>(
      Download{.stream = stream, .time = time, .to = to, .bytes = bytes, .issued = {}, .late = {}});
  std::erase_if(downloads_, [&](const std::shared_ptr<Download>& earlier) {
    if (!overlap(earlier->to, earlier->bytes, to, bytes)) return false;
    if (!known.covers(earlier->stream, earlier->time))
      report_unordered(stream, "to the host", earlier->stream,
                       " writes pinned memory that a copy writes on ");
    release_trap(std::exchange(earlier->trap, -1));
    earlier->overlaps = download->overlaps = true;
    return earlier->to >= to && earlier->to + earlier->bytes <= to + bytes;
  });
  for (const auto& upload : uploads_)
    if (overlap(upload->from, upload->bytes, to, bytes)) {
      if (!known.covers(upload->stream, upload->time))
        report_unordered(stream, "to the host", upload->stream,
                         " writes pinned memory that a copy reads on ");
      take_snapshot(*upload);
    }
  drop_watches(to, bytes, [](const Watch&) {});

  driver_.issue(stream, time, [this, download, from](Copy copy) {
    const char* const source = driver_.in(copy, from);
    (copy == Copy::late ? download->late : download->issued).assign(source, source + download->bytes);
  });
  std::memset(to, kPoison, bytes);
  download->trap = set_trap(to, to + bytes, block.data + block.requested);
  downloads_.push_back(std::move(download));
}

void Transfers::deliver(const Download& download) {
  release_trap(download.trap);
  const auto is_poison = [](char byte) { return static_cast<unsigned char>(byte) == kPoison; };
  if (!download.overlaps && !std::all_of(download.to, download.to + download.bytes, is_poison))
    driver_.ledger.violation("the host wrote to pinned memory while the device was copying to it on " +
                             stream_name(download.stream));
  const std::vector<char>& contents = download.contents(driver_.options.behind_host);
  if (contents.empty()) return;                  // the device failed before it copied
  std::vector<std::shared_ptr<Download>> later;  // which write over a part of it, and may not be over
  for (auto it = downloads_.rbegin(); it != downloads_.rend() && it->get() != &download; ++it)
    later.push_back(*it);
  for_each_unwritten(
      download.to, download.to + download.bytes, later, [&](const char* begin, const char* end) {
        const auto offset = begin - download.to;
        std::copy(contents.begin() + offset, contents.begin() + (end - download.to), download.to + offset);
      });
}

// ---- Ends ----

void Transfers::arrive(const Clock& clock) {
  std::erase_if(downloads_, [&](const std::shared_ptr<Download>& download) {
    if (!clock.covers(download->stream, download->time)) return false;
    deliver(*download);
    return true;
  });
  std::erase_if(watches_, [&](const Watch& watch) {
    if (!clock.covers(watch.stream, watch.time)) return false;
    check(watch);
    return true;
  });
}

void Transfers::lose(HostBlock& block) {
  const auto known = [&](int stream) { return block.recorded[static_cast<std::size_t>(stream)]; };
  const auto report = [&](const char* what, int stream) {
    driver_.ledger.violation(std::string("pinned memory is freed while ") + what + " on " +
                             stream_name(stream) + ", which its allocator does not know of");
  };
  std::erase_if(downloads_, [&](const std::shared_ptr<Download>& download) {
    if (!overlap(download->to, download->bytes, block.data, block.size)) return false;
    if (!known(download->stream)) report("the device is copying to it", download->stream);
    release_trap(download->trap);
    return true;
  });
  drop_watches(block.data, block.size, [&](const Watch& watch) {
    if (!known(watch.stream)) report("it is being copied to the device", watch.stream);
  });
  for (const auto& upload : uploads_)
    if (known(upload->stream) && !upload->snapshot &&
        overlap(upload->from, upload->bytes, block.data, block.size)) {
      upload->keeps = &block;
      ++block.readers;
    }
}

}  // namespace looptorch_test::accelerator
