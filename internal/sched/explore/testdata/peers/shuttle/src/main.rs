// Two tasks with three sections each over one mutex, by shuttle's random scheduler: what BenchmarkPeers measures.
use shuttle::scheduler::RandomScheduler;
use shuttle::sync::Mutex;
use shuttle::{thread, Config, FailurePersistence, Runner};
use std::sync::Arc;

fn main() {
    let n = std::env::args().last().unwrap().parse().unwrap();
    let mut config = Config::new();
    config.failure_persistence = FailurePersistence::None;
    Runner::new(RandomScheduler::new_from_seed(1, n), config).run(|| {
        let mu = Arc::new(Mutex::new(()));
        let body = |mu: Arc<Mutex<()>>| {
            move || {
                for _ in 0..3 {
                    drop(mu.lock().unwrap());
                }
            }
        };
        let tasks = [thread::spawn(body(mu.clone())), thread::spawn(body(mu))];
        for t in tasks {
            t.join().unwrap();
        }
    });
}
