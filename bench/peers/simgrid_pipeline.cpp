// SPDX-License-Identifier: Apache-2.0

// The pipeline of bench/peers/ours.cpp in SimGrid (S4U); bench/peers/run calls it.
//
//   peers_simgrid FILE callbacks|actors|graph [--cfg=...]
//
// Prints the makespan and the processor time of Engine::run() and of what is made before it
// (actors, or the activities that begin at once; with graph all of them).
//
// callbacks: no actors; what completes starts what follows it in its row. The fastest that was
// found. actors: SimGrid's usual form. One actor per rank walks its row. A send is a detached put,
// so the
//     rank goes on at once; each mailbox has a permanent receiver, so that a message leaves when it
//     is sent, not when its receive is posted.
// graph: SimGrid's form for a DAG, all activities made beforehand with their successors. Version
//     3.32 searches a list of all unfinished ones whenever one ends, which takes most of the time.
//
// Network model CM02 with neither correction factors, TCP window nor cross traffic: a transfer
// lasts latency + size / bandwidth. A flop and a byte take a nanosecond.
#include <simgrid/s4u.hpp>

#include <cstdint>
#include <cstdio>
#include <ctime>
#include <exception>
#include <fstream>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace {

namespace s4u = simgrid::s4u;

struct LinkLine {
    std::size_t sender = 0;
    std::size_t receiver = 0;
    double latency_ns = 0;
    std::uint64_t occupied_ns = 0;
};

struct Cell {
    char kind = 'C';
    std::uint64_t value = 0;  ///< C: nanoseconds, S and R: link
};

struct Pipeline {
    std::vector<LinkLine> links;
    std::vector<std::vector<Cell>> rows;
};

void expect(bool condition, const std::string& what) {
    if (!condition) {
        throw std::runtime_error(what);
    }
}

Pipeline read(const std::string& path) {
    std::ifstream in(path);
    const auto number_after = [&](const std::string& word) {
        std::string found;
        std::uint64_t number = 0;
        in >> found >> number;
        expect(in && found == word, path + ": found '" + found + "', expected " + word);
        return number;
    };
    expect(number_after("pipetwin-peers") == 1, path + ": expected version 1");
    number_after("tasks");
    number_after("makespan_ns");
    Pipeline pipeline;
    pipeline.rows.resize(number_after("ranks"));
    pipeline.links.resize(number_after("links"));
    for (LinkLine& link : pipeline.links) {
        link.sender = number_after("link");
        in >> link.receiver >> link.latency_ns >> link.occupied_ns;
    }
    for (auto& row : pipeline.rows) {
        row.resize(number_after("row"));
        for (Cell& cell : row) {
            in >> cell.kind >> cell.value;
        }
    }
    expect(static_cast<bool>(in), path + ": ends too early");
    return pipeline;
}

/// Processor time of this process: what other programs take does not count.
double now() {
    timespec time{};
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

void configure() {
    s4u::Engine::set_config("network/model:CM02");
    s4u::Engine::set_config("network/TCP-gamma:0");
    s4u::Engine::set_config("network/crosstraffic:0");
    // Events closer than this happen together; the default, 1e-9 s, is our unit of time.
    s4u::Engine::set_config("surf/precision:1e-11");
}

std::vector<s4u::Host*> make_platform(const Pipeline& pipeline) {
    s4u::NetZone* zone = s4u::create_full_zone("pipeline");
    std::vector<s4u::Host*> hosts;
    for (std::size_t rank = 0; rank < pipeline.rows.size(); ++rank) {
        hosts.push_back(zone->create_host("rank" + std::to_string(rank), 1e9));
    }
    for (std::size_t index = 0; index < pipeline.links.size(); ++index) {
        const LinkLine& line = pipeline.links[index];
        s4u::Link* link = zone->create_link("link" + std::to_string(index), 1e9);
        link->set_latency(line.latency_ns * 1e-9)->seal();
        zone->add_route(hosts[line.sender]->get_netpoint(),
                        hosts[line.receiver]->get_netpoint(),
                        nullptr,
                        nullptr,
                        {s4u::LinkInRoute(link)},
                        false);
    }
    zone->seal();
    return hosts;
}

void make_actors(const Pipeline& pipeline, const std::vector<s4u::Host*>& hosts) {
    std::vector<s4u::Mailbox*> mailboxes;
    for (std::size_t link = 0; link < pipeline.links.size(); ++link) {
        mailboxes.push_back(s4u::Mailbox::by_name("link" + std::to_string(link)));
    }
    const auto walk = [&pipeline, mailboxes](const std::vector<Cell>* row) {
        static int payload = 0;  // a message without content still needs an address
        for (const Cell& cell : *row) {
            switch (cell.kind) {
                case 'C':
                    s4u::this_actor::execute(static_cast<double>(cell.value));
                    break;
                case 'S':
                    mailboxes[cell.value]
                        ->put_init(&payload, pipeline.links[cell.value].occupied_ns)
                        ->detach();
                    break;
                default:
                    mailboxes[cell.value]->get<int>();
            }
        }
    };
    std::vector<s4u::ActorPtr> actors;
    for (std::size_t rank = 0; rank < hosts.size(); ++rank) {
        actors.push_back(s4u::Actor::create(
            "rank" + std::to_string(rank), hosts[rank], walk, &pipeline.rows[rank]));
    }
    for (std::size_t link = 0; link < pipeline.links.size(); ++link) {
        mailboxes[link]->set_receiver(actors[pipeline.links[link].receiver]);
    }
}

/// Walks the rows without actors: whatever completes starts what follows it.
class Callbacks {
  public:
    Callbacks(const Pipeline& pipeline, const std::vector<s4u::Host*>& hosts)
        : ranks_(hosts.size()), edges_(pipeline.links.size()) {
        for (std::size_t index = 0; index < hosts.size(); ++index) {
            Rank& rank = ranks_[index];
            rank.host = hosts[index];
            rank.cell = pipeline.rows[index].data();
            rank.end = rank.cell + pipeline.rows[index].size();
            rank.completion = [this, &rank] {
                rank.completed = std::move(rank.running);
                walk(rank);
            };
        }
        for (std::size_t index = 0; index < edges_.size(); ++index) {
            Edge& edge = edges_[index];
            edge.message_bytes = pipeline.links[index].occupied_ns;
            edge.receiver = &ranks_[pipeline.links[index].receiver];
            edge.completion = [this, &edge] { arrive(edge); };
        }
        s4u::Activity::on_completion_cb(
            [](const s4u::Activity& activity) { (*activity.get_data<std::function<void()>>())(); });
        for (Rank& rank : ranks_) {
            walk(rank);
        }
    }

  private:
    struct Rank {
        s4u::Host* host = nullptr;
        const Cell* cell = nullptr;  ///< the next one; while the rank waits, its receive
        const Cell* end = nullptr;
        s4u::ExecPtr running;
        s4u::ExecPtr completed;  ///< SimGrid reads it once more after its callbacks
        bool waits = false;
        std::function<void()> completion;
    };

    struct Edge {
        std::uint64_t message_bytes = 0;
        Rank* receiver = nullptr;
        std::size_t arrived = 0;  ///< and not yet taken
        s4u::CommPtr comm;        ///< the latest: messages are never together on a link
        std::function<void()> completion;
    };

    void arrive(Edge& edge) {
        ++edge.arrived;
        Rank& receiver = *edge.receiver;
        if (receiver.waits && &edges_[receiver.cell->value] == &edge) {
            walk(receiver);
        }
    }

    void walk(Rank& rank) {
        for (; rank.cell != rank.end; ++rank.cell) {
            if (rank.cell->kind == 'C') {
                compute(rank, static_cast<double>(rank.cell->value));
                ++rank.cell;
                return;
            }
            Edge& edge = edges_[rank.cell->value];
            if (rank.cell->kind == 'S') {
                send(rank, edge);
            } else {
                rank.waits = edge.arrived == 0;
                if (rank.waits) {
                    return;
                }
                --edge.arrived;
            }
        }
    }

    static void compute(Rank& rank, double flops) {
        rank.running = s4u::Exec::init();
        rank.running->set_flops_amount(flops);
        rank.running->set_data(&rank.completion);
        rank.running->set_host(rank.host);
        rank.running->start();
    }

    static void send(const Rank& rank, Edge& edge) {
        edge.comm = s4u::Comm::sendto_init(rank.host, edge.receiver->host);
        edge.comm->set_payload_size(edge.message_bytes);
        edge.comm->set_data(&edge.completion);
        edge.comm->start();
    }

    std::vector<Rank> ranks_;
    std::vector<Edge> edges_;
};

/// All activities, which follow each other as the rows and the messages say.
class Graph {
  public:
    Graph(const Pipeline& pipeline, const std::vector<s4u::Host*>& hosts)
        : pipeline_(pipeline), hosts_(hosts), sent_(pipeline.links.size()) {
        for (std::size_t rank = 0; rank < hosts.size(); ++rank) {
            add_row(rank);
        }
        std::vector<std::size_t> taken(pipeline.links.size(), 0);
        for (std::size_t rank = 0; rank < hosts.size(); ++rank) {
            auto next = execs_[rank].begin();
            for (const Cell& cell : pipeline.rows[rank]) {
                if (cell.kind == 'R') {  // links are first in, first out
                    sent_[cell.value].at(taken[cell.value]++)->add_successor(*next);
                }
                next += cell.kind == 'C' ? 1 : 0;
            }
        }
        for (const auto& row : execs_) {
            if (row.front()->dependencies_solved()) {
                row.front()->start();
            }
        }
    }

  private:
    void add_row(std::size_t rank) {
        auto& row = execs_.emplace_back();
        for (const Cell& cell : pipeline_.rows[rank]) {
            if (cell.kind == 'C') {
                const s4u::ExecPtr exec = s4u::Exec::init();
                exec->set_flops_amount(static_cast<double>(cell.value));
                exec->set_host(hosts_[rank]);
                if (!row.empty()) {
                    row.back()->add_successor(exec);
                }
                row.push_back(exec);
            } else if (cell.kind == 'S') {
                const LinkLine& link = pipeline_.links[cell.value];
                const s4u::CommPtr comm =
                    s4u::Comm::sendto_init(hosts_[link.sender], hosts_[link.receiver]);
                comm->set_payload_size(link.occupied_ns);
                row.back()->add_successor(comm);
                sent_[cell.value].push_back(comm);
            }
        }
    }

    const Pipeline& pipeline_;
    const std::vector<s4u::Host*>& hosts_;
    std::vector<std::vector<s4u::ExecPtr>> execs_;  ///< [rank]
    std::vector<std::vector<s4u::CommPtr>> sent_;   ///< [link]
};

void simulate(const s4u::Engine& engine, const Pipeline& pipeline, const std::string& form) {
    const std::vector<s4u::Host*> hosts = make_platform(pipeline);
    std::optional<Callbacks> callbacks;
    std::optional<Graph> graph;
    const double begin = now();
    if (form == "callbacks") {
        callbacks.emplace(pipeline, hosts);
    } else if (form == "graph") {
        graph.emplace(pipeline, hosts);
    } else {
        expect(form == "actors", "found '" + form + "', expected callbacks, actors or graph");
        make_actors(pipeline, hosts);
    }
    const double made = now();
    engine.run();
    const double end = now();
    std::printf("makespan_ns %.6f seconds %.9f made_in_seconds %.9f\n",
                1e9 * s4u::Engine::get_clock(),
                end - made,
                made - begin);
}

}  // namespace

int main(int argc, char** argv) {
    try {
        const s4u::Engine engine(&argc, argv);
        configure();
        expect(argc == 3, "usage: peers_simgrid FILE callbacks|actors|graph [--cfg=...]");
        simulate(engine, read(argv[1]), argv[2]);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
    return 0;
}
