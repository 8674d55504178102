//! One integer product in two planes, a number of times and nothing else: for counting instructions, where there is no hardware
//! to measure time on. 64 rows of 2,816 columns, 4 bits in tiles or 8 in source order.
//!
//! `count ISA BITS M TIMES`; the difference of two TIMES is the product alone. Under emulation, one line an instruction:
//!
//! ```sh
//! qemu-aarch64 -singlestep -d exec,nochain count i8mm 4 8 2 2>&1 | grep -c ^Trace
//! ```

use fieldfare_kernels::{Acts, Isa, Kernels, Planes, Pool, QuantData, QuantMatrix, tile};

const ROWS: usize = 64;
const COLS: usize = 2816;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [isa, bits, m_rows, times] = &args[..] else { return Err("count ISA BITS M TIMES".into()) };
    let kernels = Kernels::for_isa(isa.parse::<Isa>()?).ok_or("not on this CPU")?;
    let (m_rows, times): (usize, usize) = (m_rows.parse()?, times.parse()?);
    let panel_stride = tile::panel_bytes(COLS);
    let data = vec![0x3C; ROWS * (COLS + COLS / 16)];
    let (bits, layout) = match bits.as_str() {
        "4" => (4, QuantData::Tiles { data: &data, panel_stride }),
        "8" => {
            let (weights, sides) = data.split_at(ROWS * COLS);
            let (scales, biases) = sides.split_at(sides.len() / 2);
            (8, QuantData::Rows { weights, scales, biases })
        }
        _ => return Err("4 or 8 bits".into()),
    };
    let w = QuantMatrix::new(ROWS, COLS, bits, layout)?;
    let mut acts = Acts::new();
    kernels.quantize_acts(&Pool::new(1), &vec![1.0; m_rows * COLS], m_rows, COLS, Planes::Two, &mut acts);
    let mut y = vec![0.0; m_rows * ROWS];
    for _ in 0..times {
        kernels.matmul_q_rows(std::hint::black_box(&w), 0..ROWS, &acts, m_rows, &mut y);
    }
    println!("{}", y[0]);
    Ok(())
}
