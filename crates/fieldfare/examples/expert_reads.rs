//! How fast experts come from the disk into slots: `expert_reads DIR.gturbo THREADS direct|buffered [READS]`.
//!
//! Eight experts of a layer at a time, layer after layer, as decoding asks for them, none of them held. Direct reads are
//! the disk's; buffered ones are the page cache's, unless it is emptied before.

use fieldfare::Error;
use fieldfare::format::{Integrity, ModelDir};
use fieldfare::store::{ExpertStore, LayerFile, LayerFiles, Policy, StoreShape};
use fieldfare::sys::file::ReadFile;
use fieldfare::sys::pages::Pages;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [dir, threads, how, rest @ ..] = &args[..] else {
        return Err("usage: expert_reads DIR.gturbo THREADS direct|buffered [READS]".into());
    };
    let reads: usize = rest.first().map_or(Ok(480), |text| text.parse())?;
    let dir = ModelDir::open(dir, Integrity::Structure)?;
    let (layers, experts) = (dir.experts().layers.len(), dir.manifest().arch.num_experts);
    let stride = dir.manifest().expert_stride;
    let files = (0..layers)
        .map(|layer| {
            Ok::<_, Error>(LayerFile {
                file: ReadFile::new(dir.open_layer(layer)?),
                name: dir.experts().layers[layer].file.clone(),
                rank_of: dir.expert_parts(layer)?.slot_of,
            })
        })
        .collect::<Result<Vec<_>, _>>()?;
    let reader = LayerFiles::new(dir.path(), stride, files);
    if how == "direct" {
        reader.try_direct(Pages::new(64 << 10)?.bytes_mut());
    }
    let at_once = experts.min(8);
    let shape = StoreShape {
        layers,
        experts,
        slots: layers * at_once,
        spares: 0,
        stride: usize::try_from(stride)?,
        readers: threads.parse()?,
    };
    let mut store = ExpertStore::new(shape, Policy::Lru, Box::new(reader))?;
    let mut sum = 0u64;
    let mut seed = 1usize;
    for request in 0..reads / at_once {
        // Another set of neighbours by a large stride each time, so that no request finds what the one before left.
        seed = (seed + 37) % experts;
        let wanted: Vec<usize> = (0..at_once).map(|i| (seed + i * 11) % experts).collect();
        store.begin(request % layers, &wanted)?;
        store.finish(&mut |_, blob| {
            sum += u64::from(blob[0]);
            Ok(())
        })?;
        if request + 1 == layers {
            // The first round also takes the slots' memory from the system.
            println!("first round: {}", rate(&store));
        }
    }
    println!("all: {} (check {sum})", rate(&store));
    Ok(())
}

fn rate(store: &ExpertStore) -> String {
    let stats = store.stats();
    let (bytes, seconds) = (stats.bytes_read as f64, stats.read_time.as_secs_f64());
    let huge =
        store.huge_bytes().map_or(String::new(), |huge| format!(", {} MB in huge pages", huge / 1_000_000));
    format!("{:.2} GB/s, {} reads {}{huge}", bytes / seconds / 1e9, stats.misses, store.reads())
}
